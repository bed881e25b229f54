// Package prefetch asks the processor for memory before it is used, so that fetching it goes on beside other work. It changes
// nothing but time: an address that is no memory any more, or never was, is no error.
package prefetch
