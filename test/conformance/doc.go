// Package conformance is the root of a module of tests that need more than Go: Node, a browser, nginx, or root for
// network namespaces. Each folder is one topic. A test whose tool is missing says so and skips; with CI=true it fails.
package conformance
