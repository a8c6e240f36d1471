package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// read takes the lines out of a picture of them, broken as they are.
func read(t *testing.T, picture []byte) (lines []line) {
	t.Helper()
	dec := xml.NewDecoder(strings.NewReader(string(picture)))
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return lines
		}
		require.NoError(t, err)
		e, ok := token.(xml.StartElement)
		if !ok || e.Name.Local != "text" {
			continue
		}
		var l line
		for _, a := range e.Attr {
			if a.Name.Local == "style" {
				var ms int
				_, err := fmt.Sscanf(a.Value, "animation-delay:%dms", &ms)
				require.NoError(t, err)
				l.at = time.Duration(ms) * time.Millisecond
			}
		}
		require.NoError(t, dec.DecodeElement(&l.text, &e))
		lines = append(lines, l)
	}
}

// docs/demo.svg is what this program draws, of a run that went well.
func TestTheRecordingIsOneOfAGoodRun(t *testing.T) {
	picture, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "demo.svg"))
	require.NoError(t, err)
	lines := read(t, picture)
	require.Equal(t, line{0, prompt}, lines[0])
	require.Equal(t, string(draw(lines[1:])), string(picture), "docs/demo.svg is another picture: make recording")
	var all strings.Builder
	for i, l := range lines {
		fmt.Fprintln(&all, l.text)
		require.True(t, i == 0 || l.at >= lines[i-1].at)
	}
	require.Regexp(t, `(?s)  HOLDS  .*  waits  .*  KILLED  .*  HOLDS  .* after the kill.*\nok: \d+ critical sections in 3 processes, never two at a time`, all.String())
	require.Less(t, lines[len(lines)-1].at, 15*time.Second, "nobody waits for longer")
}

func TestDraw(t *testing.T) {
	long := strings.Repeat("0123456789", columns/10) + "and the rest <of it>"
	picture := draw([]line{{time.Second, "   0.00 s  worker-1  HOLDS   token 1"}, {1500 * time.Millisecond, long}, {2 * time.Second, ""}})
	lines := read(t, picture)
	require.Equal(t, []line{
		{0, prompt}, {time.Second, "   0.00 s  worker-1  HOLDS   token 1"}, {1500 * time.Millisecond, long[:columns]}, {1500 * time.Millisecond, long[columns:]}, {2 * time.Second, ""},
	}, lines)
	require.Contains(t, string(picture), `class="holds"`)
}

func TestRecord(t *testing.T) {
	lines, err := record("go", "env", "GOOS", "GOARCH")
	require.NoError(t, err)
	require.Len(t, lines, 2)
	require.Equal(t, typed, lines[0].at)
	_, err = record("go", "no-such-command")
	require.Error(t, err)
}
