package zkrecipes

import "testing"

func TestAdoptedLossBeforeRegrantOnAStandaloneServer(t *testing.T) {
	t.Parallel()
	underFaults(t, lossBeforeRegrantOnAStandaloneServer)
}

func TestAdoptedLossBeforeRegrantOnThreeServers(t *testing.T) {
	t.Parallel()
	underFaults(t, lossBeforeRegrantOnThreeServers)
}

func TestAdoptedWhyALeaseWasLost(t *testing.T) {
	t.Parallel()
	waitsUnderFaults(t, whyALeaseWasLost)
}

func TestAdoptedLeaseOutlivesADisconnect(t *testing.T) {
	t.Parallel()
	waitsUnderFaults(t, aLeaseOutlivesADisconnect)
}

func TestAdoptedStatesAroundALoss(t *testing.T) {
	t.Parallel()
	waitsUnderFaults(t, statesAroundALoss)
}

func TestAdoptedWaiterThatLosesItsPlaceQueuesAgain(t *testing.T) {
	t.Parallel()
	underFaults(t, aWaiterThatLosesItsPlaceQueuesAgain)
}

func TestAdoptedNoGrantWhenTheClockHasRunOut(t *testing.T) {
	t.Parallel()
	waitsUnderFaults(t, noGrantWhenTheClockHasRunOut)
}
