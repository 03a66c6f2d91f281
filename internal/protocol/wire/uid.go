package wire

import (
	"strconv"
	"strings"
)

// uuidLen is the length of the UIDs that the API server gives.
const uuidLen = 36

// AttemptUID is the UID under which a document agent gets this attempt of a
// task: the task's own for the first, then with the attempt appended. Such an
// agent echoes no attempt, so without this a late word about run 1 would end
// run 2.
func AttemptUID(uid string, attempt int32) string {
	if attempt <= 1 {
		return uid
	}
	return uid + "-" + strconv.Itoa(int(attempt))
}

// SplitAttemptUID takes apart what AttemptUID made. The attempt of a UID that
// carries none is 1.
func SplitAttemptUID(wireUID string) (uid string, attempt int32) {
	if len(wireUID) > uuidLen && wireUID[uuidLen] == '-' {
		if n, err := strconv.ParseUint(wireUID[uuidLen+1:], 10, 31); err == nil && n > 1 && !strings.HasPrefix(wireUID[uuidLen+1:], "0") {
			return wireUID[:uuidLen], int32(n)
		}
	}
	return wireUID, 1
}
