/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_TRANSPORT_KINDS_H
#define KVFS_TESTS_TRANSPORT_KINDS_H
/*
 * What the tests of the transports' contract share: the transports that they run over (a test's
 * loop index chooses one), and messages whose place, length and bytes follow from their number.
 * verbs runs where there is an RDMA device: in the virtual-machine rig
 * (tests/vm/verbs_contract.sh).
 */
#include "replication/transport/transport_fault.h"
#include "replication/transport/transport_verbs.h"
#include "tests/unit/transport_pair.h"
#include "tests/unit/unit_main.h"

#include <fcntl.h>
#include <stdio.h>

#define WINDOW (1U << 20)
#define SLOT 1024U
#define SLOTS (WINDOW / SLOT)
#define LANES 4U
#define ORDINARY (TRANSPORT_CREDITS - TRANSPORT_CREDITS_CONTROL)

static const struct kind {
	const struct transport_ops *ops;
	bool over_tcp;
	const struct transport_ops *inner; /* of the fault injector */
} kinds[] = {
	{ &transport_tcp_ops, true, NULL },
	{ &transport_shm_ops, false, NULL },
	{ &transport_fault_ops, true, &transport_tcp_ops },
	{ &transport_fault_ops, false, &transport_shm_ops },
	{ &transport_verbs_ops, true, NULL },
};

/* How many of the kinds this machine can run; KVFS_TEST_ONLY_VERBS: only the last. */
static inline int kinds_first(void)
{
	return getenv("KVFS_TEST_ONLY_VERBS") ? (int)(sizeof(kinds) / sizeof(kinds[0])) - 1 : 0;
}

static inline int kinds_end(void)
{
	int n = (int)(sizeof(kinds) / sizeof(kinds[0]));
	char text[VERBS_TEXT_BYTES];

	if (verbs_available(NULL, text, sizeof(text)) == 0 || getenv("KVFS_TEST_ONLY_VERBS"))
		return n;
	printf("transport verbs is left out: %s\n", text);
	return n - 1;
}

/* A network in which lanes overtake each other. */
static const struct transport_fault_plan delays = {
	.seed = 42, .delay_permille = 200, .delay_max_ns = 50000
};

static inline void use_kind(int kind)
{
	if (kinds[kind].inner != NULL)
		transport_fault_use(kinds[kind].inner, &delays);
}

static inline void open_kind(struct pair *p, int kind)
{
	use_kind(kind);
	pair_open(p, kinds[kind].ops, kinds[kind].over_tcp, LANES, WINDOW);
}

/* Message i: its place, length and bytes follow from i. */
static inline size_t message(uint32_t i, uint8_t buf[SLOT])
{
	size_t len = (i * 7919U) % (SLOT + 1);

	memset(buf, (int)(i * 31 + 7), len);
	return len;
}

/* A transport that does not know place and length says 0: the message is looked for where it must
 * be. */
static inline void check_message(struct pair *p, const struct transport_event *ev)
{
	uint64_t off = (uint64_t)(ev->imm % SLOTS) * SLOT;
	uint8_t buf[SLOT];
	uint64_t bytes;
	const uint8_t *w = p->ops->window(p->mirror, &bytes);
	size_t len = message(ev->imm, buf);

	ck_assert_uint_eq(ev->len, p->ops == &transport_verbs_ops ? 0 : len);
	ck_assert_uint_eq(ev->off, p->ops == &transport_verbs_ops ? 0 : off);
	ck_assert_int_eq(memcmp(w + off, buf, len), 0);
}

/* Posts messages [first, first + n) as one batch, each in two pieces; returns how
 * many were taken. */
static inline int post_batch(struct pair *p, unsigned lane, uint32_t first, unsigned n)
{
	static uint8_t bytes[64][SLOT];
	struct transport_post posts[64];
	struct iovec iov[64][2];

	ck_assert_uint_le(n, 64);
	for (unsigned i = 0; i < n; i++) {
		size_t len = message(first + i, bytes[i]);

		iov[i][0] = (struct iovec){ .iov_base = bytes[i], .iov_len = len / 3 };
		iov[i][1] =
			(struct iovec){ .iov_base = bytes[i] + len / 3, .iov_len = len - len / 3 };
		posts[i] = (struct transport_post){
			.iov = iov[i], .iovcnt = 2, .imm = first + i,
			.remote_off = (uint64_t)((first + i) % SLOTS) * SLOT
		};
	}
	return p->ops->post(p->primary, lane, posts, n);
}

/* Posts small messages until none is taken. */
static inline uint32_t post_until_short(struct pair *p, unsigned lane, uint32_t imm)
{
	uint32_t n = 0;
	int r;

	while ((r = pair_post(p, p->primary, lane, "x", 1, 0, imm)) == 1)
		n++;
	ck_assert_int_eq(r, 0);
	return n;
}

static inline unsigned open_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

#endif
