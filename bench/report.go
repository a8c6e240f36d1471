package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A report is what a run has found. Only the goroutine of the run uses it.
type report struct {
	about     about
	size      sizes
	libraries []string
	rows      []row
	samples   map[sampled][]float64
	failures  map[sampled]error             // by cell and library
	curves    map[sampled]map[int][]float64 // by curve and library: the samples by X
	curveKeys []sampled
}

// A sampled is what a sample is of.
type sampled struct{ cell, what, library string }

func newReport(a about, libraries []library, size sizes) *report {
	r := &report{
		about: a, size: size, rows: rows(size), samples: make(map[sampled][]float64), failures: make(map[sampled]error), curves: make(map[sampled]map[int][]float64),
	}
	for _, l := range libraries {
		r.libraries = append(r.libraries, l.name)
	}
	return r
}

// add takes one sample for a line of the table.
func (r *report) add(cell, what, library string, value float64) {
	if !slices.ContainsFunc(r.rows, func(row row) bool { return row.cell == cell && row.what == what }) {
		return // free and contended locks have a common list, and not all of it is for both
	}
	if math.IsNaN(value) {
		return // no figure, so no target is met by it
	}
	k := sampled{cell, what, library}
	r.samples[k] = append(r.samples[k], value)
}

func (r *report) fail(cell, library string, err error) {
	r.failures[sampled{cell: cell, library: library}] = err
}

func (r *report) failed(cell, library string) bool {
	return r.failures[sampled{cell: cell, library: library}] != nil
}

// grow takes one point of a curve.
func (r *report) grow(curve, library string, p point) {
	k := sampled{cell: curve, library: library}
	if r.curves[k] == nil {
		r.curves[k] = make(map[int][]float64)
		r.curveKeys = append(r.curveKeys, k)
	}
	r.curves[k][int(p.X)] = append(r.curves[k][int(p.X)], p.Y)
}

// series are the curves of that name, with the median of each point.
func (r *report) series(curve string) []series {
	var all []series
	for _, library := range r.libraries {
		byX := r.curves[sampled{cell: curve, library: library}]
		if len(byX) == 0 {
			continue
		}
		s := series{Name: library}
		for x, ys := range byX {
			s.Points = append(s.Points, point{float64(x), median(ys)})
		}
		slices.SortFunc(s.Points, func(a, b point) int { return int(a.X - b.X) })
		all = append(all, s)
	}
	return all
}

// value is the median for a line, and NaN when there is none.
func (r *report) value(row row, library string) float64 {
	return median(r.samples[sampled{row.cell, row.what, library}])
}

// figure writes a number as precisely as anybody reads it.
func figure(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return ""
	case math.IsInf(v, 1):
		return "∞"
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return short(v, 1)
	default:
		return short(v, 2)
	}
}

func short(v float64, digits int) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(v, 'f', digits, 64), "0"), ".")
}

// markdown writes the table.
func (r *report) markdown(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n\n", r.about)
	fmt.Fprintf(&b, "| | | %s | to raw | target | met |\n|---|---|%s---:|---:|---|\n", strings.Join(r.libraries, " | "), strings.Repeat("---:|", len(r.libraries)))
	last := ""
	for _, row := range r.rows {
		cell := row.cell
		if cell == last {
			cell = ""
		}
		last = row.cell
		what := row.what
		if row.per != "" {
			what += " per " + row.per
		}
		fmt.Fprintf(&b, "| %s | %s |", cell, what)
		for _, library := range r.libraries {
			v := figure(r.value(row, library))
			if v == "" && r.failed(row.cell, library) {
				v = "failed"
			}
			fmt.Fprintf(&b, " %s |", v)
		}
		ratio, limit, met := "", "", ""
		if row.ratio {
			ratio = figure(r.value(row, ours) / r.value(row, raw))
		}
		if row.target != nil {
			limit, met = "<= "+figure(row.target.limit), r.verdict(row)
		}
		fmt.Fprintf(&b, " %s | %s | %s |\n", ratio, limit, met)
	}
	for _, k := range r.failureKeys() {
		fmt.Fprintf(&b, "\n%s of %s failed: %v\n", k.cell, k.library, r.failures[k])
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (r *report) failureKeys() []sampled {
	var keys []sampled
	for k := range r.failures {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b sampled) int { return strings.Compare(a.cell+a.library, b.cell+b.library) })
	return keys
}

// verdict says whether a target is met; a figure that is missing meets none.
func (r *report) verdict(row row) string {
	if row.target.met(r.value(row, ours)) {
		return "yes"
	}
	return "**no**"
}

// missed are the targets that are not met.
func (r *report) missed() (lines []string) {
	for _, row := range r.rows {
		if v := r.value(row, ours); row.target != nil && !row.target.met(v) {
			lines = append(lines, fmt.Sprintf("%s, %s: %s, the target is %s", row.cell, row.what, cmp.Or(figure(v), "no figure"), figure(row.target.limit)))
		}
	}
	return lines
}

// A number is null in JSON when it is infinite, as a share of nothing is.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// json writes all of it, with the samples.
func (r *report) json(w io.Writer) error {
	type value struct {
		Median  number   `json:"median"`
		Samples []number `json:"samples"`
	}
	type line struct {
		Cell    string           `json:"cell"`
		Measure string           `json:"measure"`
		Per     string           `json:"per,omitempty"`
		Values  map[string]value `json:"values"`
		Ratio   *float64         `json:"toRaw,omitempty"`
		Target  *float64         `json:"target,omitempty"`
		Met     *bool            `json:"met,omitempty"`
	}
	out := struct {
		About     about               `json:"about"`
		Libraries []string            `json:"libraries"`
		Lines     []line              `json:"lines"`
		Curves    map[string][]series `json:"curves"`
		Failures  map[string]string   `json:"failures,omitempty"`
	}{About: r.about, Libraries: r.libraries, Curves: map[string][]series{}, Failures: map[string]string{}}
	for _, row := range r.rows {
		l := line{Cell: row.cell, Measure: row.what, Per: row.per, Values: map[string]value{}}
		for _, library := range r.libraries {
			if samples := r.samples[sampled{row.cell, row.what, library}]; len(samples) > 0 {
				v := value{Median: number(median(samples))}
				for _, sample := range samples {
					v.Samples = append(v.Samples, number(sample))
				}
				l.Values[library] = v
			}
		}
		if ratio := r.value(row, ours) / r.value(row, raw); row.ratio && !math.IsNaN(ratio) {
			l.Ratio = &ratio
		}
		if row.target != nil {
			met := row.target.met(r.value(row, ours))
			l.Target, l.Met = &row.target.limit, &met
		}
		out.Lines = append(out.Lines, l)
	}
	for _, curve := range []string{curveBytes, curveTime} {
		out.Curves[curve] = r.series(curve)
	}
	for k, err := range r.failures {
		out.Failures[k.cell+" of "+k.library] = err.Error()
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(out)
}
