// Package streambench measures streams over lanes: a worker writes items to many responses at once, over one lane and
// several, a frontend pulls them. The frontend places the streams on lanes, so the bytes of each lane are shown beside
// the rate. The two sides agree over the control connection of internal/lab/transportbench, in one process or in two;
// terms travel over it as they would inside requests.
//
// An item begins with its stream and its number in it, both u32; the frontend checks both.
package streambench
