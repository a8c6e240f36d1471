package main

import (
	"fmt"

	"github.com/zkrecipes/zkrecipes/internal/tools/svg"
)

// A place is a znode in a queue.
type place struct {
	who, kind string // kind is what its name has before the number
	number    int
	gone      bool
	holds     bool
	waitsFor  int // an index; -1: none
}

const (
	boxWidth, boxHeight = 116, 54
	boxGap              = 26
)

// row draws a queue. Who waits points at whom it waits for.
func row(p *svg.Picture, x, y float64, title string, explain []string, places []place) {
	p.Text(svg.Text{X: 24, Y: y + 16, S: title, Bold: true, Size: 14})
	for i, line := range explain {
		p.Text(svg.Text{X: 24, Y: y + 36 + 17*float64(i), S: line, Colour: svg.Faint, Size: 12.5})
	}
	at := func(i int) float64 { return x + float64(i)*(boxWidth+boxGap) }
	for i, z := range places {
		fill, stroke, state, colour := svg.Light, svg.Blue, "waits", svg.Blue
		switch {
		case z.gone:
			stroke, state, colour = svg.Rule, "gone", svg.Faint
		case z.holds:
			fill, stroke, state, colour = "#e3f5e7", svg.Green, "holds", svg.Green
		}
		p.Rect(at(i), y, boxWidth, boxHeight, fill, stroke)
		p.Text(svg.Text{X: at(i) + 10, Y: y + 21, S: z.who, Bold: true, Colour: colour})
		p.Text(svg.Text{X: at(i) + boxWidth - 10, Y: y + 21, S: state, Anchor: "end", Colour: colour, Size: 12})
		name := fmt.Sprintf("…%s%04d", z.kind, z.number)
		p.Text(svg.Text{X: at(i) + 10, Y: y + 42, S: name, Mono: true, Size: 11.5, Colour: map[bool]string{true: svg.Faint, false: svg.Ink}[z.gone]})
	}
	for i, z := range places {
		if z.waitsFor < 0 || z.gone || z.holds {
			continue
		}
		// Below the boxes; whoever points further goes lower, and arrows that end at one box end side by side.
		far := float64(i - z.waitsFor)
		from, to := at(i)+boxWidth*0.3, at(z.waitsFor)+boxWidth*0.9-float64(i-z.waitsFor-1)*14
		low := y + boxHeight + 14 + 9*(far-1)
		p.Path(fmt.Sprintf("M%g %gV%gH%gV%g", from, y+boxHeight, low, to, y+boxHeight+3), svg.Blue, false, true)
	}
}

// queue is that of a Mutex: who waits watches the one before it, and only that one.
func queue() *svg.Picture {
	p := &svg.Picture{Width: 900, Height: 416, Title: "The queue of a Mutex: each waiter watches the znode before its own"}
	const x = 316
	p.Text(svg.Text{X: x, Y: 34, S: "the children of /locks/report, in the order of their numbers", Colour: svg.Faint, Size: 12.5})
	lock := func(who string, number int) place {
		return place{who: who, kind: "-lock-", number: number, waitsFor: -1}
	}
	a, b, c, d := lock("A", 7), lock("B", 8), lock("C", 9), lock("D", 10)
	a.holds = true
	b.waitsFor, c.waitsFor, d.waitsFor = 0, 1, 2
	row(p, x, 50, "Who is first holds", []string{"Each waiter watches the znode", "before its own, and no other."}, []place{a, b, c, d})

	b.gone, c.waitsFor = true, 0
	row(p, x, 170, "B gives up", []string{"Its znode goes. C alone is told,", "looks again, and waits for A now.", "D notices nothing."}, []place{a, b, c, d})

	a.gone, a.holds, c.holds, d.waitsFor = true, false, true, 2
	row(p, x, 290, "A gives back, or its session ends", []string{"C alone is told, looks again, and", "is first. Its token, the number of", "the transaction that made its znode,", "is greater than A's."}, []place{a, b, c, d})
	return p
}

// readWrite is the queue of an RWLock.
func readWrite() *svg.Picture {
	p := &svg.Picture{Width: 1120, Height: 430, Title: "The queue of an RWLock: a reader waits for the nearest writer before it, a writer for whoever is before it"}
	const x = 268
	p.Text(svg.Text{X: x, Y: 34, S: "the children of /locks/prices, in the order of their numbers", Colour: svg.Faint, Size: 12.5})
	read := func(n, waitsFor int) place {
		return place{who: fmt.Sprint("R", n), kind: "-__READ__", number: n, waitsFor: waitsFor}
	}
	write := func(n, waitsFor int) place {
		return place{who: fmt.Sprint("W", n), kind: "-__WRIT__", number: n, waitsFor: waitsFor}
	}
	places := []place{read(1, -1), read(2, -1), write(3, 1), read(4, 2), read(5, 2), write(6, 4)}
	places[0].holds, places[1].holds = true, true
	row(p, x, 50, "Readers hold together", []string{"W3 waits for the one before it.", "R4 came after W3, and waits", "for it: no writer starves."}, places)

	next := append([]place(nil), places...)
	next[0].gone, next[1].gone, next[2].holds = true, true, true
	row(p, x, 182, "R1 and R2 give back", []string{"W3 waited for R2, and then for", "R1 if that one was still there.", "It holds alone."}, next)

	last := append([]place(nil), next...)
	last[2].gone, last[3].holds, last[4].holds = true, true, true
	row(p, x, 314, "W3 gives back", []string{"R4 and R5 are told, and hold", "together. W6 has waited for R5", "all the time and is not woken."}, last)
	return p
}
