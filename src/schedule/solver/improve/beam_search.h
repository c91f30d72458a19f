/* SPDX-License-Identifier: Apache-2.0 */
/* Beam search: many partial schedules in parallel, rated by their machines'
 * remaining slack under a deadline. */
#ifndef LHI_SCHEDULE_SOLVER_IMPROVE_BEAM_SEARCH_H
#define LHI_SCHEDULE_SOLVER_IMPROVE_BEAM_SEARCH_H

#include "schedule/solver/bound/windows.h"
#include "schedule/solver/model/machine_orders.h"

/* Runs a beam search. `windows`: set for the deadline and not refuted. Every
 * machine with streams needs a lattice (machine state graph) and none may
 * follow another; otherwise *ok is false. Keeps at most `width` partial
 * schedules, or as many as fit into `room` bytes. *ok: `out` has the orders for
 * a schedule within the deadline */
lh_status lhi_beam_search_run(lhi_windows *windows, uint32_t width, size_t room,
                              lhi_machine_orders *out, bool *ok,
                              lhi_budget *budget, lh_error *err);

#endif
