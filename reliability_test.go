package zkrecipes

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// commentsOfTests returns the comment of each test and fuzz target of the repository.
func commentsOfTests(t testing.TB) map[string]string {
	t.Helper()
	comments := make(map[string]string)
	declared := regexp.MustCompile(`(?m)((?:^//.*\n)*)^func ((?:Test|Fuzz)\w+)\(\w+ \*testing\.[TF]\)`)
	require.NoError(t, filepath.WalkDir(".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		source, err := os.ReadFile(name)
		for _, m := range declared.FindAllStringSubmatch(string(source), -1) {
			comments[m[2]] += strings.ReplaceAll(m[1], "\n// ", " ")
		}
		return err
	}))
	return comments
}

// docs/reliability.md has every kind that concerns this library; every test it names is there, and each report of a row is in the comment of a test of that row. A
// report that a test names in its last line is in a row.
func TestTestsOfTheReliabilityTable(t *testing.T) {
	text, err := os.ReadFile("docs/reliability.md")
	require.NoError(t, err)
	comments := commentsOfTests(t)
	tests := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	for _, m := range tests.FindAllStringSubmatch(string(text), -1) {
		_, ok := comments[m[1]]
		require.True(t, ok, m[1])
	}

	var kinds []string
	for _, m := range regexp.MustCompile(`(?m)^### (K\d\d) `).FindAllStringSubmatch(string(text), -1) {
		kinds = append(kinds, m[1])
	}
	require.ElementsMatch(t, strings.Fields(`K01 K02 K03 K04 K05 K06 K07 K08 K09 K10 K11 K12 K13 K14 K15 K16 K17 K18 K19 K20 K25 K26 K27 K28 K29 K30 K31`), kinds)

	there := make(map[string]bool)
	rows := 0
	columns, reports := regexp.MustCompile(`^\| (.+) \| .+ \| (.+) \| .+ \|$`), false
	for line := range strings.SplitSeq(string(text), "\n") {
		row := columns.FindStringSubmatch(line)
		switch {
		case row == nil: // between two tables
			reports = reports && line != ""
			continue
		case row[1] == "reports":
			reports = true
			continue
		case !reports: // another table
			continue
		}
		rows++
		all := ""
		for _, m := range tests.FindAllStringSubmatch(row[2], -1) {
			all += comments[m[1]]
		}
		for report := range strings.SplitSeq(row[1], ", ") {
			there[report] = true
			require.Contains(t, all, report, "the comment of a test that shows it")
		}
	}
	require.Greater(t, rows, 90)
	for name, comment := range comments {
		_, reports, ok := strings.Cut(comment, "Reports: ")
		if !ok {
			continue
		}
		for report := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(reports), "."), ", ") {
			require.True(t, there[report], "%s names %q", name, report)
		}
	}
}
