package explain

import "k8s4r.io/k8s4r/internal/core/taskstate"

// holdTexts describe the reasons for which no task of the cluster is placed.
var holdTexts = map[string]string{
	taskstate.ReasonAwaitingJournals: "it waits until the connected robots have reported what they ran since the restored backup",
}

// holdText returns why the task waits together with all others. It is empty if it does not. A robot
// starts its tasks again also meanwhile.
func (v *view) holdText() string {
	if v.hold == "" || !v.isWaiting() || v.awaitsRun() {
		return ""
	}
	if text := holdTexts[v.hold]; text != "" {
		return text
	}
	return "no task is placed (" + v.hold + ")"
}
