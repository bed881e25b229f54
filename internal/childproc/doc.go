// Package childproc runs a program's own children for one measurement: the parent starts its program again in several roles and talks with each in JSON lines
// over standard input and output. A child ends when its standard input does, so none outlives the parent; one that fails is told of with its last log lines.
package childproc

// Message is what parent and children say to each other.
type Message interface {
	// Operation is what the message is about.
	Operation() string
	// Failure is why the child cannot go on, "" in every other message.
	Failure() string
}
