package main

// cases are all cases, each in a file of its own.
var cases = []truthCase{
	{"canceled_while_running", runCanceledWhileRunning},
	{"blocked_after_exact", runBlockedAfterExact},
	{"legacy_burst_30_completed", runLegacyBurst},
	{"best_score_right", runBestScore},
	{"offline_known_s", runOfflineKnown},
	{"shutdown_blamed", runShutdownBlamed},
	{"up_ready_503", upReady503},
	{"finished_objects_after_retention", finishedObjectsAfterRetention},
	{"repeated_end_share", repeatedEndShare},
}
