package main

import (
	"bytes"
	"fmt"
	"html"
	"regexp"
	"strings"
)

// The terminal, in characters and in units of the picture.
const (
	columns   = 136
	charWidth = 7.25
	lineHigh  = 17
	margin    = 18
	bar       = 30 // the window's
)

// prompt is what somebody has typed.
const prompt = "$ go run ./cmd/zklock demo"

// colours of a line are by what it says.
var colours = []struct {
	pattern *regexp.Regexp
	class   string
}{
	{regexp.MustCompile(`^\$ `), "prompt"},
	{regexp.MustCompile(`  HOLDS  `), "holds"},
	{regexp.MustCompile(`  KILLED  `), "killed"},
	{regexp.MustCompile(`  (waits|done)  `), "faint"},
	{regexp.MustCompile(`^ok: |^worker-\d was killed`), "ok"},
}

// draw shows the lines one after the other, and goes on showing them: who does not animate pictures sees the last moment. Long ones are broken, as a terminal
// does it.
func draw(lines []line) []byte {
	lines = append([]line{{0, prompt}}, lines...)
	rows := 0
	for _, l := range lines {
		rows += len(broken(l.text))
	}
	width, height := int(columns*charWidth)+2*margin, bar+rows*lineHigh+margin
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img">`+"\n", width, height)
	b.WriteString(`<title>zklock demo: three processes take turns, one is killed while it holds, and the next is granted when its session has ended</title>
<style>
text { font: 12px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #d7dde4; white-space: pre; animation: show 0.01s both }
.prompt { fill: #ffffff; font-weight: bold } .holds { fill: #6fdd8b } .killed { fill: #ff7b72; font-weight: bold } .faint { fill: #8b98a6 } .ok { fill: #6fdd8b; font-weight: bold }
@keyframes show { from { opacity: 0 } }
@media (prefers-reduced-motion: reduce) { text { animation: none } }
</style>
`)
	fmt.Fprintf(&b, `<rect x="0.5" y="0.5" width="%d" height="%d" rx="8" fill="#14181d" stroke="#3d444d"/>`+"\n", width-1, height-1)
	for i, colour := range []string{"#ff5f57", "#febc2e", "#28c840"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="16" r="5" fill="%s"/>`+"\n", margin+18*i, colour)
	}
	y := bar + 14
	for _, l := range lines {
		for _, part := range broken(l.text) {
			// Each row is as wide as its characters are, whatever font is there.
			fmt.Fprintf(&b, `<text class="%s" x="%d" y="%d" style="animation-delay:%dms" xml:space="preserve"`, class(l.text), margin, y, l.at.Milliseconds())
			if part != "" {
				fmt.Fprintf(&b, ` textLength="%.1f"`, charWidth*float64(len(part)))
			}
			fmt.Fprintf(&b, ">%s</text>\n", html.EscapeString(part))
			y += lineHigh
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func class(text string) string {
	for _, c := range colours {
		if c.pattern.MatchString(text) {
			return c.class
		}
	}
	return "plain"
}

// broken is a line in rows.
func broken(text string) (rows []string) {
	text = strings.TrimRight(text, " ")
	for len(text) > columns {
		rows, text = append(rows, text[:columns]), text[columns:]
	}
	return append(rows, text)
}
