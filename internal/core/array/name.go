package array

import (
	"strconv"
	"strings"

	"k8s4r.io/k8s4r/internal/core/naming"
	"k8s4r.io/k8s4r/internal/protocol/indexset"
)

// nameInfix precedes the index in the name of its Task.
const nameInfix = "index"

// IndexTaskName returns the name of the Task of a single index, unless an object of another owner has
// that name. The group is the name of the TaskGroup, the task that of its only task.
func IndexTaskName(group string, index int32, task string) string {
	return naming.ChildName(naming.MaxName, indexNameParts(group, index, task)...)
}

// UniqueIndexTaskName returns the name for a Task whose IndexTaskName is taken by another owner.
func UniqueIndexTaskName(groupUID, group string, index int32, task string) string {
	return naming.UniqueChildName(naming.MaxName, groupUID, indexNameParts(group, index, task)...)
}

func indexNameParts(group string, index int32, task string) []string {
	return []string{group, nameInfix, strconv.Itoa(int(index)), task}
}

// ParseIndexTaskName returns the index of an IndexTaskName.
func ParseIndexTaskName(name, group, task string) (index int32, ok bool) {
	rest, ok := strings.CutPrefix(name, group+"-"+nameInfix+"-")
	if !ok {
		return 0, false
	}
	digits, ok := strings.CutSuffix(rest, "-"+task)
	if !ok {
		return 0, false
	}
	set, err := indexset.Parse(digits)
	if err != nil || set.Len() != 1 {
		return 0, false
	}
	for i := range set.All() {
		index = i
	}
	return index, IndexTaskName(group, index, task) == name
}

// GroupOfIndexTask returns the name of the TaskGroup in an IndexTaskName. It returns false for other
// names, and for those that were cut because they are too long.
func GroupOfIndexTask(name string) (string, bool) {
	for rest := name; ; {
		at := strings.LastIndex(rest, "-"+nameInfix+"-")
		if at < 0 {
			return "", false
		}
		digits, _, ok := strings.Cut(name[at+len(nameInfix)+2:], "-")
		if set, err := indexset.Parse(digits); ok && err == nil && set.Len() == 1 {
			return name[:at], true
		}
		rest = rest[:at]
	}
}
