package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
)

// A series is one curve.
type series struct {
	Name   string  `json:"name"`
	Points []point `json:"points"`
}

// A chart shows how something grows, on two logarithmic axes: there a power is a straight line, and its exponent the slope.
type chart struct {
	title, x, y string
	series      []series
}

// The picture, in its own units: the axes span the box in the middle.
const (
	chartWidth, chartHeight = 720, 420
	boxLeft, boxRight       = 80, 540
	boxTop, boxBottom       = 50, 360
)

var colours = []string{"#0b6e4f", "#b3261e", "#1f4e9e", "#8a5a00", "#6a3d9a", "#444444"}

// An axis maps the logarithm of a value to a place.
type axis struct{ low, high, from, to float64 }

// newAxis has room for all values; its ends are powers of ten when round is set.
func newAxis(values []float64, round bool, from, to float64) axis {
	low, high := math.Log10(slices.Min(values)), math.Log10(slices.Max(values))
	if round {
		low, high = math.Floor(low), math.Ceil(high)
	}
	if low == high {
		low, high = low-0.5, high+0.5
	}
	return axis{low, high, from, to}
}

func (a axis) at(v float64) float64 {
	return a.from + (math.Log10(v)-a.low)/(a.high-a.low)*(a.to-a.from)
}

// decades are the powers of ten within.
func (a axis) decades() (values []float64) {
	for e := math.Ceil(a.low); e <= a.high; e++ {
		values = append(values, math.Pow(10, e))
	}
	return values
}

// svg draws the chart. Points that are not above zero have no place on it.
func (c chart) svg() []byte {
	var xs, ys []float64
	var drawn []series
	for _, s := range c.series {
		s.Points = slices.DeleteFunc(slices.Clone(s.Points), func(p point) bool { return !(p.X > 0 && p.Y > 0) })
		if len(s.Points) == 0 {
			continue
		}
		for _, p := range s.Points {
			xs, ys = append(xs, p.X), append(ys, p.Y)
		}
		drawn = append(drawn, s)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", chartWidth, chartHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", chartWidth, chartHeight)
	text(&b, boxLeft, 28, "start", c.title, `font-size="15" font-weight="bold"`)
	if len(drawn) > 0 {
		c.draw(&b, drawn, newAxis(xs, false, boxLeft, boxRight), newAxis(ys, true, boxBottom, boxTop), xs)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func (c chart) draw(b *bytes.Buffer, drawn []series, x, y axis, xs []float64) {
	for _, v := range y.decades() {
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#ddd"/>`+"\n", boxLeft, y.at(v), boxRight)
		text(b, boxLeft-8, y.at(v)+4, "end", figure(v), "")
	}
	slices.Sort(xs)
	for _, v := range slices.Compact(xs) {
		fmt.Fprintf(b, `<path d="M%.1f %dV%d" stroke="#eee"/>`+"\n", x.at(v), boxTop, boxBottom)
		text(b, x.at(v), boxBottom+20, "middle", figure(v), "")
	}
	fmt.Fprintf(b, `<path d="M%d %dV%dH%d" fill="none" stroke="#333"/>`+"\n", boxLeft, boxTop, boxBottom, boxRight)
	text(b, (boxLeft+boxRight)/2, boxBottom+44, "middle", c.x, "")
	text(b, boxLeft, boxTop-6, "start", c.y, `fill="#555"`)
	for i, s := range drawn {
		colour := colours[i%len(colours)]
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="2" points="`, colour)
		for j, p := range s.Points {
			if j > 0 {
				b.WriteByte(' ')
			}
			fmt.Fprintf(b, "%.1f,%.1f", x.at(p.X), y.at(p.Y))
		}
		b.WriteString(`"/>` + "\n")
		for _, p := range s.Points {
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x.at(p.X), y.at(p.Y), colour)
		}
	}
	for _, l := range labels(drawn, y) {
		text(b, boxRight+12, l.at+4, "start", l.text, fmt.Sprintf(`fill="%s"`, colours[l.series%len(colours)]))
	}
}

// A label stands at the end of its curve.
type label struct {
	series int
	at     float64
	text   string
}

// labels keeps them apart.
func labels(drawn []series, y axis) []label {
	var all []label
	for i, s := range drawn {
		text := s.Name
		if e := exponent(s.Points); !math.IsNaN(e) {
			text += fmt.Sprintf(", exponent %.2f", e)
		}
		all = append(all, label{i, y.at(s.Points[len(s.Points)-1].Y), text})
	}
	slices.SortStableFunc(all, func(a, b label) int { return int(math.Copysign(1, a.at-b.at)) })
	const apart = 18
	for i := 1; i < len(all); i++ {
		all[i].at = max(all[i].at, all[i-1].at+apart)
	}
	return all
}

func text(b *bytes.Buffer, x, y float64, anchor, s, more string) {
	if more != "" {
		more = " " + more
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`+"\n", x, y, anchor, more, html.EscapeString(s))
}
