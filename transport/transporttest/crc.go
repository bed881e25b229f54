package transporttest

import "hash/crc32"

func crc(p []byte) uint32 { return crc32.Checksum(p, table) }

func update(sum uint32, p []byte) uint32 { return crc32.Update(sum, table, p) }
