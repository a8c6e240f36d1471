package main

import (
	"fmt"

	"github.com/zkrecipes/zkrecipes/internal/tools/svg"
)

// clock shows why a holder is told of its loss before the next one is granted. Times are in units of the session timeout T, from the moment S at which the last
// request was sent that was answered.
func clock() *svg.Picture {
	p := &svg.Picture{Width: 940, Height: 456, Title: "The lease clock: a holder that is cut off stops two thirds of the timeout after its last proof, the server ends its session later"}
	const (
		from, to = -0.3, 1.44
		left     = 118.0
		scale    = 458.0

		holder, server, next = 96.0, 206.0, 296.0 // lanes
		high                 = 30.0

		travel  = 0.035 // of a request
		cut     = 0.11
		lost    = 2.0 / 3
		expired = 1 + travel + 0.07 // a tick or so later
	)
	x := func(t float64) float64 { return left + (t-from)*scale }
	bar := func(y, from, to float64, fill, stroke, text, colour string) {
		p.Rect(x(from), y, x(to)-x(from), high, fill, stroke)
		p.Text(svg.Text{X: (x(from) + x(to)) / 2, Y: y + 20, S: text, Anchor: "middle", Colour: colour, Bold: true})
	}
	for _, lane := range []struct {
		y    float64
		name string
	}{{holder, "holder"}, {server, "ensemble"}, {next, "next in line"}} {
		p.Text(svg.Text{X: left - 14, Y: lane.y + 20, S: lane.name, Anchor: "end", Bold: true})
	}

	// The moments, behind everything.
	moment := func(t, top, bottom float64, colour string) { p.Line(x(t), top, x(t), bottom, colour, true) }
	moment(0, 62, 392, svg.Faint)
	moment(lost, 62, 366, svg.Red)
	moment(1, 236, 392, svg.Faint)
	moment(expired, 184, next, svg.Green)
	p.Bar(x(cut), holder+high+6, x(to)-x(cut), server-holder-high-12, "#fbeceb")
	p.Text(svg.Text{X: x(1.0), Y: holder + high + 27, S: "from here on nothing arrives", Colour: svg.Red, Size: 12.5})
	p.Text(svg.Text{X: x(1.0), Y: holder + high + 44, S: "and nobody tells the holder", Colour: svg.Red, Size: 12.5})

	bar(holder, from, lost, "#e3f5e7", svg.Green, "holds", svg.Green)
	bar(holder, lost, expired, svg.Light, svg.Rule, "time to stop in: T/3", svg.Faint)
	bar(server, from, expired, "#e3f5e7", svg.Green, "has the holder's session, and its znode", svg.Green)
	bar(next, from, expired, svg.Light, svg.Blue, "waits", svg.Blue)
	bar(next, expired, to, "#e3f5e7", svg.Green, "holds", svg.Green)

	// The syncs, every sixth of T.
	for i := -1; i <= 3; i++ {
		t := float64(i) / 6
		top, bottom := holder+high, server-1
		if t < cut {
			p.Path(fmt.Sprintf("M%.1f %.1fL%.1f %.1f", x(t), top, x(t+travel), bottom), svg.Blue, false, true)
			p.Path(fmt.Sprintf("M%.1f %.1fL%.1f %.1f", x(t+travel)+2, bottom, x(t+2*travel), top+1), svg.Blue, false, true)
			continue
		}
		mid := (top + bottom) / 2
		p.Path(fmt.Sprintf("M%.1f %.1fL%.1f %.1f", x(t), top, x(t+travel/2), mid), svg.Red, false, false)
		p.Path(fmt.Sprintf("M%.1f %.1fl8 8m0 -8l-8 8", x(t+travel/2)-4, mid-4), svg.Red, false, false)
	}

	p.Text(svg.Text{X: x(0) - 6, Y: 40, S: "S: the last sync is sent that is answered", Anchor: "middle"})
	p.Text(svg.Text{X: x(0) - 6, Y: 57, S: "one every T/6, to the leader", Anchor: "middle", Colour: svg.Faint, Size: 12})
	p.Text(svg.Text{X: x(lost), Y: 40, S: "lost: Done is closed, ctx ends", Anchor: "middle", Colour: svg.Red, Bold: true})
	p.Text(svg.Text{X: x(lost), Y: 57, S: "by the holder's own clock", Anchor: "middle", Colour: svg.Faint, Size: 12})
	p.Text(svg.Text{X: x(expired) + 8, Y: server + 14, S: "expired: at S + T", Colour: svg.Green, Bold: true})
	p.Text(svg.Text{X: x(expired) + 8, Y: server + 30, S: "or later, never before", Colour: svg.Faint, Size: 12})

	span := func(y, from, to float64, text string) {
		p.Path(fmt.Sprintf("M%.1f %.1fH%.1f", x(from)+2, y, x(to)-2), svg.Ink, false, true)
		p.Text(svg.Text{X: (x(from) + x(to)) / 2, Y: y - 6, S: text, Anchor: "middle"})
	}
	span(360, 0, lost, "2/3 T: how long a proof is good for")
	span(386, 0, 1, "T: the session timeout that the server has granted")
	p.Text(svg.Text{X: left, Y: 420, S: "The ensemble counts from when a request arrives, the holder from when it was sent, which is earlier.", Colour: svg.Faint, Size: 12.5})
	p.Text(svg.Text{X: left, Y: 438, S: "So no two clocks need to agree: they have to run, and that at the same speed.", Colour: svg.Faint, Size: 12.5})
	return p
}
