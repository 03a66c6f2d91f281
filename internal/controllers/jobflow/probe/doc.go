// Package probe checks whether the Pods of a step's targets are ready. It runs beside
// the planner of flows, so that a plan never waits for the network.
//
// The jobflow controller uses it like this:
//
//	prober := probe.New(probe.Config{
//		ListPods: …, // lists the Pods of Jobs
//		OnChange: …, // enqueues the flow, for example with a source.Channel
//	})
//	mgr.Add(prober)                                  // runs the probes
//	prober.Result(flow, "step")                      // in observe: the state, as data
//	prober.SetTargets(flow, map[string]probe.Target{…}) // in apply: the probes to run
//
// SetTargets replaces all probes of a flow; SetTargets(flow, nil) stops them. A probe
// whose target has changed, such as a Job that was created again, starts again. OnChange
// is called when a Result has changed, from its own goroutine and without locks, so it
// may call the Prober. After a restart all probes start again.
//
// A round runs all checks of all lists against all Pods of the task, and succeeds if all
// of them pass. Rounds without a Pod, or with a Pod without an address, do not succeed,
// but do not count against failureThreshold. Once the targets have ended, the first round
// that does not succeed is the last.
package probe
