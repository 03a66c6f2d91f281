// Package watch is a watch cache with an event log. Store holds the objects that the console
// shows, and Ring holds the latest changes of these objects, in order, for any number of readers.
//
// A new reader reads the position (Ring.Position), then the lists (Store.List), and then follows
// from the position (Ring.Since). Changes in between are sent again; readers recognize them by
// their resourceVersion.
package watch
