/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target for what comes over the control connection: frame headers and the messages of the
 * handshake. The first byte chooses the decoder. What decodes must keep the decoders' promises and
 * survive being encoded again.
 * Corpus: tests/fuzz/corpus/handshake.
 */
#include "replication/frame.h"
#include "replication/handshake.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
	if (!holds)
		abort();
}

static void fuzz_frame(const uint8_t *p, size_t len)
{
	struct frame f;

	if (len < sizeof(struct repl_frame))
		return;
	if (frame_decode(p, &f) == 0) {
		must(f.len <= (f.type == REPL_RESYNC_DATA ? REPL_DATA_BYTES_MAX :
			       f.type == REPL_EPOCHS      ? EPOCHS_BYTES_MAX :
							    REPL_SMALL_BYTES_MAX));
		must(f.type >= REPL_HELLO && f.type < REPL_FRAME_TYPE_END);
	}
	frame_intact(p, p + sizeof(struct repl_frame), len - sizeof(struct repl_frame));
}

static void fuzz_join(const uint8_t *p, size_t len)
{
	struct handshake_join j;
	struct repl_join w;

	if (handshake_join_decode(p, len, &j))
		return;
	must(j.life != 0 && j.lanes > 0 && j.timeout_ms > 0 && j.protocol <= 2);
	handshake_join_encode(&j, &w);
	must(memcmp(&w, p, offsetof(struct repl_join, proof)) == 0);
}

static void fuzz_welcome(const uint8_t *p, size_t len)
{
	struct handshake_welcome v;
	struct repl_welcome w;

	if (handshake_welcome_decode(p, len, &v))
		return;
	must(v.lanes > 0 && v.ring_bytes > 0 && v.ring_bytes % 4096 == 0 && v.last_lsn + 1 != 0);
	handshake_welcome_encode(&v, &w);
	must(memcmp(&w, p, offsetof(struct repl_welcome, proof)) == 0);
}

static void fuzz_refuse(const uint8_t *p, size_t len)
{
	struct handshake_refusal r;

	if (handshake_refuse_decode(p, len, &r))
		return;
	must(strnlen(r.text, sizeof(r.text)) < sizeof(r.text));
	must(handshake_refusal_errno(r.code) < 0);
}

static void fuzz_epochs(const uint8_t *p, size_t len)
{
	uint8_t again[EPOCHS_BYTES_MAX];
	struct epochs t;

	if (epochs_decode(p, len, &t))
		return;
	must(t.count <= EPOCHS_MAX &&
	     epochs_common(&t, UINT64_MAX, &t, UINT64_MAX) == (t.count ? UINT64_MAX : 0));
	must(epochs_encode(&t, again) == len && memcmp(again, p, len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct repl_hello hello;
	struct repl_challenge challenge;

	if (size == 0)
		return 0;
	switch (data[0] % 7) {
	case 0:
		fuzz_frame(data + 1, size - 1);
		break;
	case 1:
		handshake_hello_decode(data + 1, size - 1, &hello);
		break;
	case 2:
		handshake_challenge_decode(data + 1, size - 1, &challenge);
		break;
	case 3:
		fuzz_join(data + 1, size - 1);
		break;
	case 4:
		fuzz_welcome(data + 1, size - 1);
		break;
	case 5:
		fuzz_epochs(data + 1, size - 1);
		break;
	default:
		fuzz_refuse(data + 1, size - 1);
		break;
	}
	return 0;
}
