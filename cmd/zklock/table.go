package main

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A table is text in columns, each as wide as its widest cell.
type table struct {
	rows   [][]string
	colour map[string]string // of a cell with that text, where colours are wanted
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// String has no space at the end of a line.
func (t *table) String() string {
	var width []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			text := cell
			if c := t.colour[cell]; c != "" {
				text = "\x1b[" + c + "m" + cell + "\x1b[0m"
			}
			line.WriteString(text)
			line.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)+2))
		}
		b.WriteString(strings.TrimRight(line.String(), " "))
		b.WriteByte('\n')
	}
	return b.String()
}

func (t *table) print(w io.Writer) error {
	_, err := io.WriteString(w, t.String())
	return err
}

// shown is text of others, which must not move the cursor of whoever looks at it.
func shown(s string) string {
	if s == "" {
		return "-"
	}
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}
