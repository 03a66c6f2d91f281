package main

// cases are all cases, each in a file of its own.
var cases = []truthCase{
	{"canceled_while_running", runCanceledWhileRunning},
	{"blocked_after_exact", runBlockedAfterExact},
	{"up_ready_503", upReady503},
	{"finished_objects_after_retention", finishedObjectsAfterRetention},
}
