/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* memfd_create */
#include "runtime/engine/run_journal.h"

#include <longhaul/experimental/adapt.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Kinds of entries. */
typedef enum entry_kind {
    ENTRY_SWITCH,
    ENTRY_NOTICE,
    ENTRY_ATTEMPT /* no bytes; drops earlier entries of its step and later */
} entry_kind;

/* Head of an entry, which `size` bytes follow. */
typedef struct entry {
    uint64_t step;
    uint32_t kind, size;
} entry;

/* A journal in memory. */
typedef struct journal_copy {
    unsigned char *bytes;
    size_t size; /* of complete entries */
} journal_copy;

/* Fails with LH_EIO: the journal (record of switches and notices over all
 * attempts) cannot be read or written; the message has errno's text. */
static lh_status fail_io(lh_error *err)
{
    return lhi_fail(err, LH_EIO, "the run's journal: %s", strerror(errno));
}

lh_status lhi_journal_make(int *out, lh_error *err)
{
    *out = memfd_create("longhaul-journal", MFD_CLOEXEC);
    return *out < 0 ? fail_io(err) : LH_OK;
}

/* Appends a `kind` entry for step `step` with the bytes of `text` to the
 * journal; frees `text`. */
static lh_status append(int journal, entry_kind kind, uint64_t step,
                        lhi_text *text, lh_error *err)
{
    const entry head = {step, kind, (uint32_t)text->len};
    lhi_text all = {0};
    lhi_text_add(&all, (const char *)&head, sizeof head);
    lhi_text_add(&all, text->data, text->len);
    all.failed = all.failed || text->failed;
    lh_status status = all.failed ? lhi_fail_nomem(err) : LH_OK;
    if (status == LH_OK &&
        (lseek(journal, 0, SEEK_END) < 0 ||
         write(journal, all.data, all.len) != (ssize_t)all.len))
        status = fail_io(err);
    lhi_text_fini(&all);
    lhi_text_fini(text);
    return status;
}

lh_status lhi_journal_add_switch(int journal, const lhi_switch *row,
                                 lh_error *err)
{
    unsigned char bytes[LHI_SWITCH_BYTES];
    lhi_text text = {0};
    lhi_switch_write(row, bytes);
    lhi_text_add(&text, (const char *)bytes, sizeof bytes);
    lhi_text_add(&text, row->assignment, row->n_assignment);
    return append(journal, ENTRY_SWITCH, row->step, &text, err);
}

lh_status lhi_journal_add_notice(int journal, const lhi_adapt_notice *row,
                                 lh_error *err)
{
    unsigned char bytes[LHI_ADAPT_NOTICE_BYTES];
    lhi_text text = {0};
    lhi_adapt_notice_write(row, bytes);
    lhi_text_add(&text, (const char *)bytes, sizeof bytes);
    return append(journal, ENTRY_NOTICE, row->notice.step, &text, err);
}

/* Reads the journal's complete entries, without one that a killed rank has not
 * finished; release out->bytes with free(). */
static lh_status copy_journal(int journal, journal_copy *out, lh_error *err)
{
    struct stat info;
    entry head;
    *out = (journal_copy){0};
    if (fstat(journal, &info) != 0)
        return fail_io(err);
    const size_t size = (size_t)info.st_size;
    if (!(out->bytes = malloc(size + 1)))
        return lhi_fail_nomem(err);
    if (pread(journal, out->bytes, size, 0) != (ssize_t)size) {
        free(out->bytes);
        return fail_io(err);
    }
    while (size - out->size >= sizeof head) {
        memcpy(&head, out->bytes + out->size, sizeof head);
        if (head.size > size - out->size - sizeof head)
            break;
        out->size += sizeof head + head.size;
    }
    return LH_OK;
}

/* Checks whether the iteration of entry `head`, which ends at byte `end`, is
 * repeated by a later attempt, so that the entry no longer counts. */
static bool is_dropped(const journal_copy *all, const entry *head, size_t end)
{
    entry later;
    for (size_t at = end; at < all->size; at += sizeof later + later.size) {
        memcpy(&later, all->bytes + at, sizeof later);
        if (later.kind == ENTRY_ATTEMPT && later.step <= head->step)
            return true;
    }
    return false;
}

/* Appends the encoded entries of iterations that no later attempt repeats to
 * `out`. */
static void list_entries(const journal_copy *all, lhi_journal_entries *out)
{
    entry head;
    for (size_t at = 0; at < all->size; at += sizeof head + head.size) {
        memcpy(&head, all->bytes + at, sizeof head);
        const char *bytes = (const char *)all->bytes + at + sizeof head;
        if (head.kind == ENTRY_ATTEMPT ||
            is_dropped(all, &head, at + sizeof head + head.size))
            continue;
        const bool is_switch = head.kind == ENTRY_SWITCH;
        lhi_text_add(is_switch ? &out->switches : &out->notices, bytes,
                     head.size);
        out->n_switches += is_switch;
        out->n_notices += !is_switch;
    }
}

lh_status lhi_journal_read(int journal, lhi_journal_entries *out, lh_error *err)
{
    journal_copy all;
    *out = (lhi_journal_entries){0};
    LHI_TRY(copy_journal(journal, &all, err));
    list_entries(&all, out);
    free(all.bytes);
    if (!out->switches.failed && !out->notices.failed)
        return LH_OK;
    lhi_text_fini(&out->switches);
    lhi_text_fini(&out->notices);
    return lhi_fail_nomem(err);
}

/* Sets *out to whether the last iteration before `step` ran under another
 * schedule or data path than `initial`, or after a migration. */
static lh_status has_switched(const journal_copy *all, uint64_t step,
                              const lh_exec *initial, bool *out, lh_error *err)
{
    entry head;
    lhi_switch row;
    *out = false;
    for (size_t at = 0; at < all->size; at += sizeof head + head.size) {
        memcpy(&head, all->bytes + at, sizeof head);
        if (head.kind != ENTRY_SWITCH || head.step >= step ||
            is_dropped(all, &head, at + sizeof head + head.size))
            continue;
        LHI_TRY(lhi_switch_read(all->bytes + at + sizeof head, LHI_SWITCH_BYTES,
                                &row, err));
        if (!row.is_refused)
            *out = row.n_assignment > 0 || row.path != initial->options.path ||
                   strcmp(row.to, lh_adapt_candidate(0)) != 0;
    }
    return LH_OK;
}

lh_status lhi_journal_begin_attempt(int journal, uint64_t step,
                                    const lh_exec *initial, lhi_switch *back,
                                    bool *switches, lh_error *err)
{
    journal_copy all;
    lhi_text none = {0};
    LHI_TRY(copy_journal(journal, &all, err));
    lh_status status =
        ftruncate(journal, (off_t)all.size) == 0 ? LH_OK : fail_io(err);
    if (status == LH_OK)
        status = has_switched(&all, step, initial, switches, err);
    if (status == LH_OK)
        status = append(journal, ENTRY_ATTEMPT, step, &none, err);
    *back = (lhi_switch){.step = step,
                         .predicted_ns = lh_exec_predicted_ns(initial),
                         .path = initial->options.path};
    lhi_text_copy(back->to, sizeof back->to, lh_adapt_candidate(0));
    lhi_text_copy(back->why, sizeof back->why,
                  "after the loss of a rank the run begins with its initial "
                  "schedule");
    if (status == LH_OK && *switches)
        status = lhi_journal_add_switch(journal, back, err);
    free(all.bytes);
    return status;
}
