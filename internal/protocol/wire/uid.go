package wire

import (
	"strconv"
	"strings"
)

// uuidLen is the length of the UIDs that the API server gives.
const uuidLen = 36

// AttemptUID returns the UID under which a legacy agent gets an attempt: the task's own for the
// first, then with the attempt appended. Legacy agents report no attempt, so otherwise a late
// report about attempt 1 could end attempt 2.
func AttemptUID(uid string, attempt int32) string {
	if attempt <= 1 {
		return uid
	}
	return uid + "-" + strconv.Itoa(int(attempt))
}

// SplitAttemptUID splits the result of AttemptUID. A UID without an attempt has attempt 1.
func SplitAttemptUID(wireUID string) (uid string, attempt int32) {
	if len(wireUID) > uuidLen && wireUID[uuidLen] == '-' {
		if n, err := strconv.ParseUint(wireUID[uuidLen+1:], 10, 31); err == nil && n > 1 && !strings.HasPrefix(wireUID[uuidLen+1:], "0") {
			return wireUID[:uuidLen], int32(n)
		}
	}
	return wireUID, 1
}
