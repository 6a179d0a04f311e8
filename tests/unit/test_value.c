/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values against a plain array of bytes: random operations, with readers that hold references
 * across changes, a checkpoint that goes on meanwhile (by the hooks), and an arena that runs full.
 * KVFS_TEST_SEED replays, KVFS_TEST_OPS sets the number of operations.
 */
#include "fs/store/value.h"

#include "common/crc32c.h"
#include "tests/unit/unit_main.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MODEL_CHUNKS 26
#define MODEL_MAX ((uint64_t)MODEL_CHUNKS * VALUE_CHUNK_BYTES)
#define WRITE_MAX (1U << 20)
#define HELD_MAX 24
#define BALLAST_MAX 4096

/* ck_assert writes to a pipe each time: too slow for millions of checks. */
#define must(cond)                                  \
	do {                                        \
		if (!(cond))                        \
			ck_abort_msg("%s", #cond);  \
	} while (0)

struct held {
	struct value_ref refs[20];
	int n;
	uint64_t len;
	uint8_t *copy;
};

/* A checkpoint in progress: what it must find, and what it has got so far. */
struct image {
	bool running, inline_pending;
	uint64_t size;
	uint8_t *frozen;
	struct slot *slot[MODEL_CHUNKS + 1];
	uint32_t valid[MODEL_CHUNKS + 1];
};

struct fixture {
	struct region_pool *pool;
	struct slab *slab;
	struct value v;
	struct value_hook hook;
	uint64_t rng;
	uint64_t size;
	uint8_t *model, *src;
	/* what the segments of finished checkpoints say */
	uint8_t *persisted;
	uint32_t persisted_bytes[MODEL_CHUNKS + 1];
	struct held held[HELD_MAX];
	struct image image;
	struct slot *ballast[BALLAST_MAX];
	unsigned ballasts, failures;
	bool full;
};

static uint64_t rnd(struct fixture *f, uint64_t below)
{
	f->rng ^= f->rng << 13;
	f->rng ^= f->rng >> 7;
	f->rng ^= f->rng << 17;
	return below ? (f->rng * 0x2545F4914F6CDD1DULL >> 11) % below : 0;
}

static void image_take(struct fixture *f, uint64_t idx, struct slot *slot)
{
	must(!f->image.slot[idx]);
	if (!slot)
		return;
	slot_get(slot);
	f->image.slot[idx] = slot;
	f->image.valid[idx] = value_chunk_valid(&f->v, idx);
	must(f->image.valid[idx] <= slot->cap);
}

/* img.persisted: pending in the running checkpoint; img.seg: 1 when the segments have it. */
static void hook_before(void *ctx, struct value_chunk *c)
{
	struct fixture *f = ctx;

	if (!c) {
		must(f->v.height == 0);
		if (f->image.running && f->image.inline_pending)
			image_take(f, 0, f->v.u.slot);
		f->image.inline_pending = false;
	} else if (c->img.persisted) {
		image_take(f, c->idx, c->slot);
		c->img.persisted = 0;
	}
}

static void hook_after(void *ctx, struct value_chunk *c)
{
	struct fixture *f = ctx;

	if (!c)
		must(f->v.height == 0);
	else
		must(c->img.persisted == 0);
	if (c) {
		c->img.seg = 0;
		must(value_find_chunk(&f->v, c->idx) == c);
	}
}

static void hook_gone(void *ctx, struct value_chunk *c)
{
	struct fixture *f = ctx;

	must(c->img.persisted == 0);
	must(!value_find_chunk(&f->v, c->idx));
}

static int freeze_chunk(void *ctx, struct value_chunk *c)
{
	struct fixture *f = ctx;
	uint32_t valid = value_chunk_valid(&f->v, c->idx);
	uint8_t *copy = f->persisted + c->idx * VALUE_CHUNK_BYTES;

	c->img.persisted = 1;
	must(valid <= c->slot->cap);
	if (c->img.seg) { /* clean: the older copy must do */
		must(f->persisted_bytes[c->idx] >= valid);
		must(memcmp(copy, c->slot->data, valid) == 0);
	} else {
		memcpy(copy, c->slot->data, valid);
		f->persisted_bytes[c->idx] = valid;
		c->img.seg = 1;
	}
	return 0;
}

static void image_freeze(struct fixture *f)
{
	f->image.running = true;
	f->image.size = f->size;
	memcpy(f->image.frozen, f->model, f->size);
	f->image.inline_pending = f->v.height == 0;
	value_each_chunk(&f->v, freeze_chunk, f);
}

static int finish_chunk(void *ctx, struct value_chunk *c)
{
	if (c->img.persisted)
		image_take(ctx, c->idx, c->slot);
	c->img.persisted = 0;
	return 0;
}

static void image_finish(struct fixture *f)
{
	static const uint8_t zeros[VALUE_CHUNK_BYTES];
	struct image *im = &f->image;

	if (im->inline_pending)
		image_take(f, 0, f->v.u.slot);
	im->inline_pending = false;
	value_each_chunk(&f->v, finish_chunk, f);
	for (uint64_t i = 0; i * VALUE_CHUNK_BYTES < im->size; i++) {
		uint64_t left = im->size - i * VALUE_CHUNK_BYTES;
		uint32_t want = left < VALUE_CHUNK_BYTES ? (uint32_t)left : VALUE_CHUNK_BYTES;
		const uint8_t *data = im->slot[i] ? im->slot[i]->data : zeros;

		if (im->slot[i])
			must(im->valid[i] == want);
		must(memcmp(data, im->frozen + i * VALUE_CHUNK_BYTES, want) == 0);
	}
	for (unsigned i = 0; i <= MODEL_CHUNKS; i++) {
		slot_put(f->slab, im->slot[i]);
		im->slot[i] = NULL;
	}
	im->running = false;
}

static void verify_range(struct fixture *f, uint64_t off, uint64_t end)
{
	static const uint8_t zeros[VALUE_CHUNK_BYTES];

	must(f->v.size == f->size);
	while (off < end && off < f->size) {
		struct value_ref refs[4];
		uint64_t got, pos = off;
		int n = value_refs(&f->v, off, end - off, refs, 4, &got);

		must(n > 0);
		for (int i = 0; i < n; i++) {
			const uint8_t *data = refs[i].slot ? refs[i].slot->data + refs[i].off :
							     zeros;

			must(memcmp(data, f->model + pos, refs[i].len) == 0);
			pos += refs[i].len;
			value_ref_put(f->slab, &refs[i]);
		}
		must(pos - off == got);
		off = pos;
	}
}

static uint64_t pick_off(struct fixture *f)
{
	uint64_t limit = rnd(f, 8) ? 3 * VALUE_CHUNK_BYTES : MODEL_MAX;

	switch (rnd(f, 6)) {
	case 0:
		return 0;
	case 1:
		return f->size;
	case 2:
		return rnd(f, limit / VALUE_CHUNK_BYTES) * VALUE_CHUNK_BYTES;
	case 3:
		return rnd(f, limit / 4096) * 4096;
	default:
		return rnd(f, limit);
	}
}

static uint64_t pick_len(struct fixture *f, uint64_t max)
{
	static const uint32_t usual[] = { 100, 1000, 5000, VALUE_CHUNK_BYTES,
					  2 * VALUE_CHUNK_BYTES };
	uint64_t len = rnd(f, 50) ? usual[rnd(f, 5)] : WRITE_MAX;

	if (rnd(f, 4))
		len = rnd(f, len);
	if (len > max)
		len = max;
	return len ? len : 1;
}

static void failed(struct fixture *f, int err)
{
	if (err == 0)
		return;
	must(err == -ENOSPC && f->full);
	f->failures++;
}

static void model_grow(struct fixture *f, uint64_t size)
{
	if (size > f->size) {
		memset(f->model + f->size, 0, size - f->size);
		f->size = size;
	}
}

static void op_write(struct fixture *f)
{
	uint64_t off = pick_off(f), len, hint;
	struct value_stage *stage;
	uint32_t crc, salt = (uint32_t)rnd(f, WRITE_MAX);
	int err;

	if (off >= MODEL_MAX)
		off = 0;
	len = pick_len(f, MODEL_MAX - off < WRITE_MAX ? MODEL_MAX - off : WRITE_MAX);
	hint = rnd(f, 10) ? f->size : rnd(f, MODEL_MAX);
	err = value_stage(f->slab, off, f->src + salt, len, hint, &stage, &crc);
	must(err == 0);
	must(crc == crc32c(0, f->src + salt, len));
	err = value_write(f->slab, &f->v, &f->hook, stage, f->src + salt);
	value_stage_free(f->slab, stage);
	failed(f, err);
	if (!err) {
		model_grow(f, off);
		memcpy(f->model + off, f->src + salt, len);
		if (off + len > f->size)
			f->size = off + len;
	}
	verify_range(f, off > 5000 ? off - 5000 : 0, off + 200);
	verify_range(f, off + len - 1, off + len + 3000);
}

static void op_truncate(struct fixture *f)
{
	uint64_t size = rnd(f, 4) ? pick_off(f) : 0;
	bool shrink = size <= f->size;
	int err;

	if (size > MODEL_MAX)
		size = MODEL_MAX;
	err = value_truncate(f->slab, &f->v, &f->hook, size);
	if (shrink)
		must(err == 0);
	failed(f, err);
	if (!err) {
		model_grow(f, size);
		f->size = size;
	}
	verify_range(f, size > 5000 ? size - 5000 : 0, size);
	if (size == 0)
		must(f->v.chunks == 0);
}

static void op_punch(struct fixture *f)
{
	uint64_t off = pick_off(f), len = pick_len(f, UINT64_MAX);
	uint64_t end = off + len < f->size ? off + len : f->size;
	int err = value_punch(f->slab, &f->v, &f->hook, off, len);

	failed(f, err);
	if (!err && off < end)
		memset(f->model + off, 0, end - off);
	verify_range(f, off > 5000 ? off - 5000 : 0, off + len + 5000);
}

static void op_reserve(struct fixture *f)
{
	uint64_t off = pick_off(f), len, hole;
	bool keep = rnd(f, 2);
	int err;

	if (off >= MODEL_MAX)
		off = 0;
	len = pick_len(f, MODEL_MAX - off);
	err = value_reserve(f->slab, &f->v, &f->hook, off, len, keep);
	failed(f, err);
	if (err)
		return;
	if (!keep)
		model_grow(f, off + len);
	if (off < f->size) {
		must(value_seek(&f->v, off, true, &hole) == 0);
		must(hole >= off + len || hole == f->size);
	}
}

static void op_seek(struct fixture *f)
{
	uint64_t off = pick_off(f), data = 0, hole = 0;
	int err = value_seek(&f->v, off, false, &data);

	if (off >= f->size) {
		must(err == -ENXIO);
		must(value_seek(&f->v, off, true, &hole) == -ENXIO);
		return;
	}
	if (err)
		data = f->size;
	must(data >= off && data <= f->size);
	for (uint64_t i = off; i < data; i++)
		must(f->model[i] == 0);
	must(value_seek(&f->v, off, true, &hole) == 0);
	must(hole >= off && hole <= f->size && (hole == off || data == off));
}

static void held_release(struct fixture *f, struct held *h)
{
	uint64_t pos = 0;

	for (int i = 0; i < h->n; i++) {
		if (h->refs[i].slot)
			must(memcmp(h->refs[i].slot->data + h->refs[i].off, h->copy + pos,
				    h->refs[i].len) == 0);
		pos += h->refs[i].len;
		value_ref_put(f->slab, &h->refs[i]);
	}
	free(h->copy);
	*h = (struct held){ 0 };
}

static void op_hold(struct fixture *f)
{
	struct held *h = &f->held[rnd(f, HELD_MAX)];
	uint64_t off = pick_off(f);

	held_release(f, h);
	if (off >= f->size)
		return;
	h->n = value_refs(&f->v, off, pick_len(f, WRITE_MAX), h->refs, 20, &h->len);
	h->copy = malloc(h->len + 1);
	memcpy(h->copy, f->model + off, h->len);
}

static void op_image(struct fixture *f)
{
	if (f->image.running)
		image_finish(f);
	else
		image_freeze(f);
}

/* Other values that take and leave the arena's last slots. */
static void op_ballast(struct fixture *f)
{
	if (!f->full)
		return;
	if (rnd(f, 2)) {
		while (f->ballasts < BALLAST_MAX &&
		       slab_alloc(f->slab, rnd(f, 3) ? SLAB_SLOT_MAX : 1 + rnd(f, SLAB_SLOT_MAX),
				  &f->ballast[f->ballasts]) == 0)
			f->ballasts++;
		return;
	}
	for (uint64_t n = rnd(f, 12); n > 0 && f->ballasts > 0; n--) {
		uint64_t i = rnd(f, f->ballasts);

		slot_put(f->slab, f->ballast[i]);
		f->ballast[i] = f->ballast[--f->ballasts];
	}
}

static void step(struct fixture *f)
{
	uint64_t dice = rnd(f, 100);

	if (dice < 45)
		op_write(f);
	else if (dice < 56)
		op_truncate(f);
	else if (dice < 65)
		op_punch(f);
	else if (dice < 70)
		op_reserve(f);
	else if (dice < 75)
		op_seek(f);
	else if (dice < 90)
		op_hold(f);
	else if (dice < 93)
		op_image(f);
	else
		op_ballast(f);
}

static void fixture_open(struct fixture *f, uint64_t arena_bytes)
{
	memset(f, 0, sizeof(*f));
	must(region_pool_create(&region_memfd_ops, arena_bytes, 0, &f->pool) == 0);
	f->slab = slab_create(f->pool);
	f->hook = (struct value_hook){ hook_before, hook_after, hook_gone, f };
	f->model = calloc(1, MODEL_MAX + WRITE_MAX);
	f->image.frozen = malloc(MODEL_MAX);
	f->persisted = malloc(MODEL_MAX + VALUE_CHUNK_BYTES);
	f->src = malloc(2 * WRITE_MAX);
	f->rng = 88172645463325252ULL;
	for (size_t i = 0; i < 2 * WRITE_MAX; i++)
		f->src[i] = (uint8_t)(rnd(f, 255) + 1);
}

static void fixture_close(struct fixture *f)
{
	struct slab_stats st;

	if (f->image.running)
		image_finish(f);
	for (int i = 0; i < HELD_MAX; i++)
		held_release(f, &f->held[i]);
	while (f->ballasts > 0)
		slot_put(f->slab, f->ballast[--f->ballasts]);
	value_clear(f->slab, &f->v);
	slab_stats(f->slab, &st);
	must(st.used_bytes == 0);
	slab_destroy(f->slab);
	region_pool_destroy(f->pool);
	free(f->model);
	free(f->image.frozen);
	free(f->persisted);
	free(f->src);
}

static void run_model(unsigned run, uint64_t arena_bytes, bool full)
{
	const char *seed_text = getenv("KVFS_TEST_SEED"), *ops_text = getenv("KVFS_TEST_OPS");
	uint64_t seed = seed_text ? strtoull(seed_text, NULL, 0) : (uint64_t)time(NULL) * 64 + run;
	uint64_t ops = ops_text ? strtoull(ops_text, NULL, 0) : 50000;
	static struct fixture f;

	printf("test_value: KVFS_TEST_SEED=%llu%s\n", (unsigned long long)seed,
	       full ? " (full arena)" : "");
	fflush(stdout);
	fixture_open(&f, arena_bytes);
	f.full = full;
	f.rng ^= seed * 0x9E3779B97F4A7C15ULL;
	for (uint64_t i = 0; i < ops; i++) {
		step(&f);
		if (i % 64 == 0)
			verify_range(&f, 0, f.size);
	}
	verify_range(&f, 0, f.size);
	if (full && ops > 10000)
		must(f.failures > 100);
	fixture_close(&f);
}

START_TEST(behaves_like_an_array)
{
	run_model((unsigned)_i, 256ULL << 20, false);
}
END_TEST

START_TEST(changes_nothing_when_the_arena_is_full)
{
	run_model((unsigned)_i + 8, 24ULL << 20, true);
}
END_TEST

static void put(struct fixture *f, uint64_t off, const void *src, size_t len)
{
	struct value_stage *stage;
	uint32_t crc;

	ck_assert_int_eq(value_stage(f->slab, off, src, len, f->v.size, &stage, &crc), 0);
	ck_assert_int_eq(value_write(f->slab, &f->v, NULL, stage, src), 0);
	value_stage_free(f->slab, stage);
}

START_TEST(reaches_the_largest_size)
{
	static struct fixture f;
	struct value_ref ref;
	struct value_stage *stage;
	uint64_t len, off;
	uint32_t crc;

	fixture_open(&f, 32ULL << 20);
	put(&f, 0, "first", 5);
	put(&f, VALUE_SIZE_MAX - 4, "last", 4);
	ck_assert_uint_eq(f.v.size, VALUE_SIZE_MAX);
	ck_assert_uint_eq(f.v.chunks, 2);
	ck_assert_int_eq(value_refs(&f.v, VALUE_SIZE_MAX - 4, 100, &ref, 1, &len), 1);
	ck_assert_uint_eq(len, 4);
	ck_assert_int_eq(memcmp(ref.slot->data + ref.off, "last", 4), 0);
	value_ref_put(f.slab, &ref);
	ck_assert_int_eq(value_seek(&f.v, 70000, false, &off), 0);
	ck_assert_uint_eq(off, VALUE_SIZE_MAX - VALUE_CHUNK_BYTES);
	ck_assert_int_eq(value_stage(f.slab, VALUE_SIZE_MAX - 1, "xx", 2, 0, &stage, &crc), -EFBIG);
	ck_assert_int_eq(value_truncate(f.slab, &f.v, NULL, VALUE_SIZE_MAX + 1), -EFBIG);
	ck_assert_int_eq(value_reserve(f.slab, &f.v, NULL, VALUE_SIZE_MAX, 1, true), -EFBIG);
	ck_assert_int_eq(value_reserve(f.slab, &f.v, NULL, 0, 1ULL << 40, true), -ENOSPC);
	ck_assert_int_eq(value_truncate(f.slab, &f.v, NULL, 3), 0);
	ck_assert_uint_eq(f.v.chunks, 1);
	fixture_close(&f);
}
END_TEST

/* What was reserved can be written when nothing else is left. */
START_TEST(keeps_what_was_reserved)
{
	static struct fixture f;
	struct slot *slot;

	fixture_open(&f, 24ULL << 20);
	ck_assert_int_eq(value_reserve(f.slab, &f.v, NULL, 0, 8ULL << 20, true), 0);
	ck_assert_uint_eq(f.v.size, 0);
	while (slab_alloc(f.slab, SLAB_SLOT_MAX, &slot) == 0)
		f.ballast[f.ballasts++] = slot;
	while (slab_alloc(f.slab, 1, &slot) == 0)
		f.ballast[f.ballasts++] = slot;
	for (uint64_t off = 0; off < 8ULL << 20; off += WRITE_MAX / 4)
		put(&f, off, f.src, WRITE_MAX / 4);
	ck_assert_uint_eq(f.v.size, 8ULL << 20);
	fixture_close(&f);
}
END_TEST

START_TEST(loads_chunks)
{
	static struct fixture f;
	struct value_chunk *c;
	struct slot *slot;

	fixture_open(&f, 32ULL << 20);
	f.v.size = 3 * VALUE_CHUNK_BYTES;
	for (uint64_t i = 0; i < 4; i++) {
		ck_assert_int_eq(slab_alloc(f.slab, VALUE_CHUNK_BYTES, &slot), 0);
		memset(slot->data, (int)i, VALUE_CHUNK_BYTES);
		ck_assert_int_eq(value_load_chunk(f.slab, &f.v, i % 3, slot, false, &c), 0);
		ck_assert_ptr_eq(value_find_chunk(&f.v, i % 3), c);
	}
	ck_assert_uint_eq(f.v.chunks, 3);
	ck_assert_uint_eq(value_find_chunk(&f.v, 0)->slot->data[5], 3);
	value_unload_chunks(f.slab, &f.v, 1, 2);
	ck_assert_uint_eq(f.v.chunks, 1);
	ck_assert_int_eq(slab_alloc(f.slab, 10, &slot), 0);
	ck_assert_int_eq(value_load_chunk(f.slab, &f.v, 0, slot, true, &c), 0);
	ck_assert_ptr_null(c);
	ck_assert_ptr_eq(f.v.u.slot, slot);
	f.v.size = 10;
	fixture_close(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("value");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 0);
	tcase_add_loop_test(t, behaves_like_an_array, 0, 3);
	tcase_add_loop_test(t, changes_nothing_when_the_arena_is_full, 0, 2);
	tcase_add_test(t, reaches_the_largest_size);
	tcase_add_test(t, keeps_what_was_reserved);
	tcase_add_test(t, loads_chunks);
	suite_add_tcase(s, t);
	return unit_run(s);
}
