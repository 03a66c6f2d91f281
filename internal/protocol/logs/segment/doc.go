// Package segment keeps a long text in a directory as a row of files, of which
// only the last few stay: a log that is bounded however much is written.
//
// Each file (segment) is named by the offset of its first byte in the whole
// text, so an offset stays good for ever, also when what it points at has been
// removed. Lines are whole: none is spread over two segments, and a reader is
// never given the beginning of one that is still being written. There is one
// writer at a time and any number of readers, in any processes.
package segment
