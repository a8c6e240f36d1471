package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// drawn parses a picture: its curves as places, and its texts. It fails if anything is outside of it.
func drawn(t *testing.T, svg []byte) (curves [][]point, texts []string) {
	t.Helper()
	dec := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return curves, texts
		}
		require.NoError(t, err, "%s", svg)
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		attr := make(map[string]string)
		for _, a := range e.Attr {
			attr[a.Name.Local] = a.Value
		}
		switch e.Name.Local {
		case "polyline":
			var curve []point
			for pair := range strings.FieldsSeq(attr["points"]) {
				var p point
				_, err := fmt.Sscanf(pair, "%g,%g", &p.X, &p.Y)
				require.NoError(t, err)
				require.True(t, p.X >= boxLeft && p.X <= boxRight && p.Y >= boxTop && p.Y <= boxBottom, "%v is outside", p)
				curve = append(curve, p)
			}
			curves = append(curves, curve)
		case "text":
			var s string
			require.NoError(t, dec.DecodeElement(&s, &e))
			texts = append(texts, s)
		}
	}
}

func TestChart(t *testing.T) {
	c := chart{title: "a < b & c", x: "N", y: "kB", series: []series{
		{"linear", []point{{100, 20}, {1000, 200}}},
		{"square", []point{{100, 20}, {1000, 2000}}},
		{"nothing above zero", []point{{100, 0}, {0, 5}}},
	}}
	curves, texts := drawn(t, c.svg())
	require.Len(t, curves, 2)
	require.Subset(t, texts, []string{"a < b & c", "N", "kB", "100", "1000", "10", "10000", "linear, exponent 1.00", "square, exponent 2.00"})
	require.Len(t, texts, 11, "and no others: %q", texts)

	linear, square := curves[0], curves[1]
	require.Equal(t, []float64{boxLeft, boxRight}, []float64{linear[0].X, linear[1].X}, "from the first to the last N")
	require.Equal(t, linear[0], square[0])
	decade := float64(boxBottom-boxTop) / 3 // from 10 to 10000
	require.InDelta(t, decade, linear[0].Y-linear[1].Y, 0.11)
	require.InDelta(t, 2*decade, square[0].Y-square[1].Y, 0.11)
	require.Equal(t, c.svg(), c.svg(), "the same data, the same picture")
}

func TestChartOfLittle(t *testing.T) {
	curves, texts := drawn(t, chart{title: "none"}.svg())
	require.Empty(t, curves)
	require.Equal(t, []string{"none"}, texts)

	curves, texts = drawn(t, chart{title: "one", series: []series{{"dot", []point{{100, 100}}}}}.svg())
	require.Len(t, curves, 1)
	require.Contains(t, texts, "dot", "one point has no exponent")
}

func TestLabelsStandApart(t *testing.T) {
	var all []series
	for i := range 4 {
		all = append(all, series{fmt.Sprint(i), []point{{1, 100}, {10, 200 - float64(i)}}})
	}
	ls := labels(all, newAxis([]float64{100, 200}, true, boxBottom, boxTop))
	require.Len(t, ls, 4)
	for i := 1; i < len(ls); i++ {
		require.GreaterOrEqual(t, ls[i].at-ls[i-1].at, 13.0, "lower than a line of text is high")
	}
}
