// Package childproc runs other processes so that none is left behind: each has a goroutine that waits for it, is told
// to end and then made to, and ends (on Linux) when its parent is killed. Start is one that runs beside its parent,
// Run one that is waited for.
//
// Proc and Group are a program's own children for one measurement: the parent starts its program again in several
// roles and talks with each in JSON lines over standard input and output. A child ends when its standard input does;
// one that fails is told of with its last log lines.
package childproc

// Message is what parent and children say to each other.
type Message interface {
	// Operation is what the message is about.
	Operation() string
	// Failure is why the child cannot go on, "" in every other message.
	Failure() string
}
