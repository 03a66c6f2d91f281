// Package logstore keeps what tasks have written, on the server: one log an
// attempt, with the server's own lines in it.
//
// A log is text of records (internal/tasklog). Robots count the bytes that they
// have sent; readers count the bytes of the log, in which the server's lines
// stand between the robot's. Records of the stream "marked" join the two: each
// file begins with one that says how many of the robot's bytes came before it,
// so that the byte which the server wants next follows from the file alone, also
// after kill -9.
//
// There are two stores behind one interface, with one suite of tests: Files, and
// Bucket, which puts finished logs into any bucket that gocloud.dev/blob knows.
package logstore
