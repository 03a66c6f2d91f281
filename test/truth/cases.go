package main

// cases are all cases, each in a file of its own.
var cases = []truthCase{}
