// Package version holds the version that the programs were built as.
package version

// Version is set by the linker; dev in a build without it.
var Version = "dev"
