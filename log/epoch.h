/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_LOG_EPOCH_H
#define KVFS_LOG_EPOCH_H
/*
 * Epochs, and the history of a volume's log as a table of where each of them began.
 *
 * An epoch is TERM.START in one number: the term rises with each promotion, the start with each
 * start of that term's primary, and each is on media before its first record is written. A volume
 * that was restored from a copy, and two copies of one, count from the same number again: so each
 * start also draws a life by chance. A record's (LSN, epoch, node, life) names one record and
 * all that came before it: two nodes agree up to there or they do not. A term belongs to one node.
 * A primary that merely starts again does not get past a promotion that it missed: the term decides
 * first.
 *
 * The table holds one entry an epoch that has records, oldest first, and forgets the oldest when it
 * is full: of LSNs before its first entry nothing is known. Pure functions, no threads.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EPOCH_START_BITS 24
#define EPOCH_TEXT_BYTES 32

static inline uint64_t epoch_make(uint64_t term, uint64_t start)
{
	return term << EPOCH_START_BITS | start;
}

static inline uint64_t epoch_term(uint64_t epoch)
{
	return epoch >> EPOCH_START_BITS;
}

static inline uint64_t epoch_start(uint64_t epoch)
{
	return epoch & ((1U << EPOCH_START_BITS) - 1);
}

/* The epoch after `epoch` for the next start of the same primary, or, promoted, for another. After
 * 2^24 starts the term rises by itself. Never below 1.1, or 2.1 promoted: the first term is that of
 * the volume's first primary. */
uint64_t epoch_next(uint64_t epoch, bool promoted);

/* "2.1". Returns out. */
char *epoch_format(uint64_t epoch, char out[EPOCH_TEXT_BYTES]);

#define EPOCHS_MAX 64

struct epochs_entry {
	uint64_t epoch;
	uint64_t first_lsn;
	uint32_t node_id; /* whose records they are */
	uint32_t life;    /* random, non-zero: of the start that began it */
};

struct epochs {
	uint32_t count;
	struct epochs_entry entry[EPOCHS_MAX]; /* epoch and first_lsn both rise strictly */
};

/* Entries that begin after last_lsn are forgotten: their records are not there (any more). */
void epochs_cut(struct epochs *t, uint64_t last_lsn);

/* epoch begins with first_lsn. -EINVAL: it is not above the newest. */
int epochs_begin(struct epochs *t, uint64_t epoch, uint64_t first_lsn, uint32_t node_id,
		 uint32_t life);

/* Which epoch the record lsn is of. False: not known. */
bool epochs_at(const struct epochs *t, uint64_t lsn, struct epochs_entry *ret_entry);

/* The highest LSN up to which two histories, of a_last and b_last records, are known to be the
 * same; 0: of none. */
uint64_t epochs_common(const struct epochs *a, uint64_t a_last, const struct epochs *b,
		       uint64_t b_last);

bool epochs_equal(const struct epochs *a, const struct epochs *b);

/* On media and on the wire: count entries of 24 bytes, big-endian. decode: -EBADMSG. */
#define EPOCHS_ENTRY_BYTES 24
#define EPOCHS_BYTES_MAX (EPOCHS_MAX * EPOCHS_ENTRY_BYTES)
size_t epochs_encode(const struct epochs *t, uint8_t out[EPOCHS_BYTES_MAX]);
int epochs_decode(const uint8_t *in, size_t len, struct epochs *ret_t);

#endif
