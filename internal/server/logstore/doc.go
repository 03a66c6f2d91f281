// Package logstore stores the output of tasks on the server: one log for each attempt, which also
// contains lines of the server. An attempt that its robot has restarted has a second one, with the records
// of its runs (internal/protocol/logs/runlog).
//
// A log consists of records (internal/protocol/logs/record). Offsets of robots count the bytes that
// they have sent; offsets of readers count the bytes of the log, including the server's lines.
// Records of the stream "marked" map one to the other: each file begins with one that contains the
// number of the robot's bytes before it. So the next expected byte follows from the file alone,
// also after kill -9.
//
// There are two implementations with one test suite: Files, and Bucket, which moves finished logs
// to any bucket that gocloud.dev/blob supports.
package logstore
