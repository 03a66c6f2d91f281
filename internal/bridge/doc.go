// Package bridge is the server: it carries messages between robots (MQTT) and
// the API server, both ways (docs/spec/mqtt.md).
//
//	robot -> uplink -> registration, heartbeat, presence -> robots -> Robot
//	                -> reports -> judge -> Task
//	                -> logs -> logstore
//	Task  -> view -> downlink -> dispatch -> robot
//	              -> tasklist -> tasks/state -> robot
//
// It decides nothing about where or whether work runs. What a robot says of a
// task is judged by the table in lifecycle, and a word that the table does not
// allow is counted and dropped. Everything that it keeps in memory can be lost:
// reports are repeated by the robots until they are acknowledged, dispatches
// are repeated from the Tasks, and the last word of a robot comes again with
// its next heartbeat.
package bridge
