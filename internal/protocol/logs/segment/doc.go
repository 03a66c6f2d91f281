// Package segment stores a log of bounded size in a directory: a sequence of files (segments), of
// which only the last ones are kept.
//
// Each segment is named by the offset of its first byte in the whole log, so an offset keeps its
// meaning after the bytes before it have been removed. No line is split between two segments, and
// readers get only complete lines. There is one writer at a time and any number of readers, in any
// processes.
package segment
