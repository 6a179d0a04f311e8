/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_CRASH_MODEL_H
#define KVFS_TESTS_CRASH_MODEL_H
/* What a node that was stopped must hold: records, and the digest of the state after each of them.
 * For one file of a program: it has a madvise of its own. */
#include "tests/unit/store_gen.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define DIGEST_BYTES 16

/*
 * In place of the C library's: a region of the arena is 8 MiB, and half of the time of a step went
 * into making all of it present. Here its pages come when they are touched.
 */
int madvise(void *addr, size_t len, int advice)
{
	if (advice == MADV_POPULATE_WRITE || advice == MADV_COLLAPSE)
		return 0;
	return (int)syscall(SYS_madvise, addr, len, advice);
}

/* A store, the records that made it, and the digest of its state after each. */
struct model {
	struct fixture f;
	struct gen *gen;
	uint8_t (*digests)[DIGEST_BYTES]; /* [lsn] */
};

static inline void model_make(struct model *m, uint64_t seed, uint64_t records)
{
	fixture_open(&m->f, 64 << 20, 4096);
	m->gen = gen_create(&m->f, seed);
	m->gen->large_max = 200000;
	m->digests = calloc(records + 1, DIGEST_BYTES);
	ck_assert_ptr_nonnull(m->digests);
	store_digest(m->f.st, m->digests[0]);
	while (m->gen->count < records) {
		gen_step(m->gen);
		store_digest(m->f.st, m->digests[m->gen->count]);
	}
}

static inline void model_destroy(struct model *m)
{
	gen_destroy(m->gen);
	fixture_close(&m->f);
	free(m->digests);
}

#endif
