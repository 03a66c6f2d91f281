// Package gateway carries messages between robots (MQTT) and the API server, both ways
// (docs/reference/mqtt.md).
//
//	robot -> uplink -> registration, heartbeat, presence -> robots -> Robot
//	                -> reports -> applyReport -> Task
//	                -> logs -> logstore
//	Task  -> objectIndex -> downlink -> dispatch -> robot
//	                     -> tasklist -> tasks/state -> robot
//
// It makes no decisions about tasks. Reports of robots change a task by the table of
// core/lifecycle; those that the table does not allow are counted and dropped. All
// state in memory can be lost: robots repeat reports until they are acknowledged,
// dispatches are repeated from the Tasks, and heartbeats restore the robots' state.
package gateway
