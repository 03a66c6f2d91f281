// Package probe asks the Pods of a step's targets whether they are ready (contract §4
// row 2), beside the planner of flows: a plan never waits for the network.
//
// The jobflow controller uses it so:
//
//	prober := probe.New(probe.Config{
//		Pods:    …, // the Pods of Jobs, out of the manager's cache
//		Changed: …, // puts the flow into the controller's queue, as by a source.Channel
//	})
//	mgr.Add(prober)                                  // it asks while it runs
//	prober.Result(flow, "step")                      // in observe: what is known, as data
//	prober.Keep(flow, map[string]probe.Target{…})    // in apply: what to ask from now on
//
// Keep says it all: what it names is asked, and what it does not name any more is
// not. Keep(flow, nil) is for a flow that has ended or is gone. A target that has
// changed, such as a Job that was made again, is asked anew. Changed is called when a
// Result differs from the one before, from a goroutine of its own and outside of all
// locks, so it may call the Prober. After a restart everything is asked anew.
//
// A round asks everything in all lists, of all Pods of the task: it holds if all of it
// does. Rounds in which there is no Pod yet, or one without an address, do not hold,
// and do not count against failureThreshold either. Once the targets are over, the
// first round that does not hold is the last.
package probe
