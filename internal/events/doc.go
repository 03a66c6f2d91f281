// Package events shows what happens as it happens: World holds all objects that people look
// at, as the API server's watches tell of them, and Ring the last changes of them, in order,
// for any number of readers.
//
// A reader that comes for the first time takes its position (Ring.Position), reads the lists
// (World.List), and follows from there (Ring.Since): what changed in between comes again, and
// is told by its resourceVersion from what is new.
package events
