package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPicturesAreDrawn(t *testing.T) {
	for name, draw := range pictures {
		t.Run(name, func(t *testing.T) {
			p := draw()
			file, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", name))
			require.NoError(t, err)
			require.Equal(t, string(p.Bytes()), string(file), "docs/%s is another picture: make diagrams", name)
			dec := xml.NewDecoder(strings.NewReader(string(file)))
			for {
				_, err := dec.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
			}
			for i, a := range p.Texts {
				left, top, right, bottom := a.Box()
				require.True(t, left >= 8 && top >= 8 && right <= float64(p.Width)-8 && bottom <= float64(p.Height)-8, "%q is not within the picture", a.S)
				for _, b := range p.Texts[i+1:] {
					l, u, r, d := b.Box()
					require.False(t, left < r && l < right && top < d && u < bottom, "%q and %q stand on each other", a.S, b.S)
				}
			}
		})
	}
}

// The document shows all of them, and they are drawn by nobody else.
func TestTheDocumentShowsThem(t *testing.T) {
	root := filepath.Join("..", "..", "..", "docs")
	text, err := os.ReadFile(filepath.Join(root, "concepts.md"))
	require.NoError(t, err)
	for name := range pictures {
		require.Contains(t, string(text), "]("+name+")")
	}
	files, err := filepath.Glob(filepath.Join(root, "concepts-*.svg"))
	require.NoError(t, err)
	require.Len(t, files, len(pictures))
}
