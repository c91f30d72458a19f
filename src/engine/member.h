/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a run, from the first step to the last: what it has, what it
 * says to others beside tensors, and what it hands back. steps.c has it do what
 * rank 0 orders. */
#ifndef LHI_MEMBER_H
#define LHI_MEMBER_H

#include "engine/adapting.h"
#include "engine/observe.h"
#include "engine/reschedule.h"
#include "engine/shift.h"
#include "engine/steps.h"

#include <stdatomic.h>

/* A message that is on its way while the next step goes on. */
typedef struct lhi_sending {
    unsigned char *bytes;
    size_t room;
    bool is_on;
    lhi_net_op op;
} lhi_sending;

typedef struct lhi_member {
    const lhi_job *job;
    lhi_net *net;
    lhi_shift *shift;
    lhi_rescheduler *rescheduler; /* NULL: nothing was proposed so far */
    lhi_adapting *adapting;       /* rank 0; NULL: the run does not adapt */
    uint32_t n_told;              /* notices that were handed on */
    lhi_sending seen;             /* other ranks, of the last step asked for */
    uint64_t clock;               /* where the run adapts, of the host */
    lhi_device *device;
    lhi_group *groups[LHI_N_GRID_KINDS]; /* that the device is in; or NULL */
    double validating_ns[LH_N_TRAIN_GROUPS]; /* what calls of these took then */
    lhi_group *near_experts; /* of one of these, those on one node; or NULL */
    lhi_training *training; /* NULL: nothing is trained */
    lhi_observer *observer; /* NULL: nothing is to be profiled */
    uint64_t n_steps;       /* that this rank has done */
    uint32_t me, n;
    uint32_t place;          /* that it has now */
    lhi_seat *seat;          /* NULL: what it began with */
    lhi_exchange_ops moving; /* under way until the endpoint is closed */
    lh_iteration *iterations; /* rank 0 */
    uint32_t n_iterations;
    int64_t moved_ns; /* what moving took before this step */
    bool interrupted, saved;
    int64_t held[LH_N_MEMORY_KINDS]; /* the most so far, all kinds together */
    uint32_t over;                   /* a rank beyond its limit; LH_NONE */
    int64_t over_bytes;
    uint64_t n_grown;
    uint64_t n_grown_before; /* this rank's, under schedules before */
    uint64_t turn;           /* numbers the rounds of orders */
    uint32_t state;          /* of the course of events; 0 without one;
                                LH_NONE: not known to be set */
    lhi_net_stop stop_now;
    const lhi_net_stop *stop; /* rank 0: &stop_now; NULL: nothing stops it */
    atomic_bool told;         /* that it stops */
    uint32_t n_unheard;       /* steps since this rank alone was asked to */
} lhi_member;

/* --- small messages, of the present turn; waited for -----------------------
 */

lh_status lhi_member_tell(lhi_member *w, uint32_t to, unsigned class,
                          const void *data, size_t size, lh_error *err);
lh_status lhi_member_hear(lhi_member *w, uint32_t from, unsigned class,
                          void *data, size_t size, lh_error *err);
/* Says whose message it is that is wrong. */
lh_status lhi_member_from(uint32_t from, lh_status status, lh_error *err);
lh_status lhi_member_tell_command(lhi_member *w, uint32_t to,
                                  const lhi_command *command, lh_error *err);
lh_status lhi_member_hear_command(lhi_member *w, lhi_command *out,
                                  lh_error *err);
lh_status lhi_member_tell_done(lhi_member *w, const lhi_done *done,
                               lh_error *err);
lh_status lhi_member_hear_done(lhi_member *w, uint32_t from, lhi_done *out,
                               lh_error *err);

/* --- whom its device computes with (member_groups.c) ------------------------
 */

lh_status lhi_member_join_groups(lhi_member *w, lh_error *err);
void lhi_member_leave_groups(lhi_member *w);
/* What the groups' calls have taken so far, without those of steps that
 * validated, by lh_train_group_kind. */
void lhi_member_spent(const lhi_member *w, double ns[LH_N_TRAIN_GROUPS]);

/* --- memory (member_memory.c) ----------------------------------------------
 */

/* Notes what is held now, also by what is about to come; NULL: there is no
 * such. */
void lhi_member_note_held(lhi_member *w, const lhi_shift *next,
                          const lhi_seat *seat);
/* Where limits are enforced, after a step, on all ranks: w->over. */
lh_status lhi_member_check_limits(lhi_member *w, uint64_t turn, lh_error *err);
/* At the end, on all ranks: what each has held, by rank and kind, which rank 0
 * adds to `out`. */
lh_status lhi_member_share_held(lhi_member *w, lhi_text *out, lh_error *err);

/* --- other seats (member_move.c) --------------------------------------------
 */

/* Who has what now; NULL: as the run began. */
const lhi_seats *lhi_member_seats(const lhi_member *w);
/* All ranks, before `step`, of a proposal that moves and that all agree to: what
 * was trained moves; timed devices take the time. *out: rank 0's, bytes of all ranks. Then
 * the proposal is to be closed, and lhi_member_moved() told, with the seat that
 * the rescheduler had for it. */
lh_status lhi_member_move(lhi_member *w, uint64_t step, lhi_moving *out,
                          lh_error *err);
void lhi_member_moved(lhi_member *w, lhi_seat *next);

/* --- the end: what was recorded ------------------------------------------- */

/* To rank 0: the counts as one message, so that it knows the size of the
 * rows. */
lh_status lhi_member_send_records(lhi_member *w, lh_error *err);
/* How the run went, as rank 0 hands it back; `n_recorded`: ranks whose records
 * follow. */
void lhi_member_add_heading(const lhi_member *w, uint32_t n_recorded,
                            lhi_text *out);
/* That with all records, which ranks send once they are told that it is the
 * end. */
lh_status lhi_member_collect(lhi_member *w, lhi_text *out, lh_error *err);

#endif
