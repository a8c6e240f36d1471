// Package svg writes the pictures of the documents. They have a light ground of their own, so that they can be read on a dark page as well.
package svg

import (
	"bytes"
	"fmt"
	"html"
)

// The colours of the pictures.
const (
	Ink    = "#1f2328" // text and outlines
	Faint  = "#59636e" // what explains
	Rule   = "#d1d9e0"
	Ground = "#fbfcfd"
	Green  = "#1a7f37" // holds
	Blue   = "#0b57d0" // waits
	Red    = "#b3261e" // lost
	Light  = "#ffffff"
)

// A Picture is drawn from the back to the front.
type Picture struct {
	Width, Height int
	Title         string // for who cannot see it

	body  bytes.Buffer
	Texts []Text // what was written, for tests
}

// A Text stands on its baseline at X, Y.
type Text struct {
	X, Y   float64
	S      string
	Size   float64 // 13 if 0
	Anchor string  // start if empty
	Colour string  // Ink if empty
	Bold   bool
	Mono   bool
}

// Box is about where it is: fonts differ.
func (t Text) Box() (left, top, right, bottom float64) {
	per := 0.56
	if t.Mono {
		per = 0.61
	}
	width := per * t.Size * float64(len([]rune(t.S)))
	left = t.X
	switch t.Anchor {
	case "middle":
		left -= width / 2
	case "end":
		left -= width
	}
	return left, t.Y - 0.8*t.Size, left + width, t.Y + 0.25*t.Size
}

// Text writes.
func (p *Picture) Text(t Text) {
	t.Size, t.Anchor, t.Colour = or(t.Size, 13), or(t.Anchor, "start"), or(t.Colour, Ink)
	p.Texts = append(p.Texts, t)
	more := ""
	if t.Bold {
		more += ` font-weight="bold"`
	}
	if t.Mono {
		more += ` font-family="ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace"`
	}
	fmt.Fprintf(&p.body, `<text x="%g" y="%g" font-size="%g" text-anchor="%s" fill="%s"%s>%s</text>`+"\n", t.X, t.Y, t.Size, t.Anchor, t.Colour, more, html.EscapeString(t.S))
}

func or[T comparable](v, standard T) T {
	var zero T
	if v == zero {
		return standard
	}
	return v
}

// Rect is a rounded one, with an outline in a colour.
func (p *Picture) Rect(x, y, w, h float64, fill, stroke string) {
	fmt.Fprintf(&p.body, `<rect x="%g" y="%g" width="%g" height="%g" rx="5" fill="%s" stroke="%s" stroke-width="1.5"/>`+"\n", x, y, w, h, fill, stroke)
}

// Bar has no outline.
func (p *Picture) Bar(x, y, w, h float64, fill string) {
	fmt.Fprintf(&p.body, `<rect x="%g" y="%g" width="%g" height="%g" fill="%s"/>`+"\n", x, y, w, h, fill)
}

// Line is a straight one.
func (p *Picture) Line(x1, y1, x2, y2 float64, stroke string, dashed bool) {
	fmt.Fprintf(&p.body, `<path d="M%g %gL%g %g" stroke="%s" stroke-width="1.5"%s/>`+"\n", x1, y1, x2, y2, stroke, dash(dashed))
}

// Path is any, with a head at its end if it is an arrow.
func (p *Picture) Path(d, stroke string, dashed, arrow bool) {
	head := ""
	if arrow {
		head = fmt.Sprintf(` marker-end="url(#%s)"`, stroke[1:])
	}
	fmt.Fprintf(&p.body, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"%s%s/>`+"\n", d, stroke, dash(dashed), head)
}

func dash(dashed bool) string {
	if dashed {
		return ` stroke-dasharray="4 3"`
	}
	return ""
}

// Raw adds elements as they are.
func (p *Picture) Raw(s string) { p.body.WriteString(s) }

// Bytes is the file.
func (p *Picture) Bytes() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" font-family="system-ui,'Segoe UI',Helvetica,Arial,sans-serif" role="img">`+"\n", p.Width, p.Height)
	fmt.Fprintf(&b, "<title>%s</title>\n", html.EscapeString(p.Title))
	for _, colour := range []string{Ink, Faint, Green, Blue, Red} {
		fmt.Fprintf(&b, `<marker id="%s" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="%s"/></marker>`+"\n", colour[1:], colour)
	}
	fmt.Fprintf(&b, `<rect x="0.5" y="0.5" width="%d" height="%d" rx="8" fill="%s" stroke="%s"/>`+"\n", p.Width-1, p.Height-1, Ground, Rule)
	b.Write(p.body.Bytes())
	b.WriteString("</svg>\n")
	return b.Bytes()
}
