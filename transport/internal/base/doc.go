// Package base holds what the planes have in common: the order of writes and a half close, the totals of a transport,
// the ports of a listener, and a log that repeats itself only so often.
package base
