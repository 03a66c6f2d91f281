package program

// Parts of this package for its tests, which cannot be in it: the suite of drivers imports it.
var (
	OpenInMemory = openInMemory
	Check        = check
	ForgetPages  = forgetPages
	Carried      = len(embedded) > 0
)
