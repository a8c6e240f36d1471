package zkrecipes

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var campaigns = map[string]func(*testing.T){
	"TestVirtualCampaign":          TestVirtualCampaign,
	"TestVirtualLeaderCampaign":    TestVirtualLeaderCampaign,
	"TestVirtualSemaphoreCampaign": TestVirtualSemaphoreCampaign,
	"TestVirtualBarrierCampaign":   TestVirtualBarrierCampaign,
}

// The schedules with which a campaign once failed, shrunk by make shrink.
func TestVirtualSchedules(t *testing.T) {
	file, err := os.ReadFile("testdata/schedules")
	require.NoError(t, err)
	for line := range strings.Lines(string(file)) {
		line, why, _ := strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		fields := strings.Fields(line)
		require.Len(t, fields, 3, line)
		require.NotEmpty(t, why, line)
		campaign := campaigns[fields[0]]
		require.NotNil(t, campaign, line)
		t.Run(strings.Join(fields, " "), func(t *testing.T) {
			t.Setenv("ZKRECIPES_TEST_SEED", fields[1])
			t.Setenv("ZKRECIPES_STRIKES", fields[2])
			campaign(t)
		})
	}
}
