// Package planepage writes what /debug/plane shows to people: one page of HTML without scripts and without anything
// from elsewhere, readable in light and dark, on narrow screens and by keyboard. What is many (workers, lanes, sockets)
// stands summed up by worker process, and one by one below a summary that opens. All text is escaped.
package planepage
