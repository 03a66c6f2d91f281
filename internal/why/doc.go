// Package why says why a task waits, or what became of it, and what the tasks of a job wait
// for: what is known, in an order in which people read it, for whoever shows it. It decides
// nothing and asks no robot: all of it stands in the objects that it is given.
package why
