/* SPDX-License-Identifier: Apache-2.0 */
/* Many partial schedules side by side, judged by what their machines' lattices
 * leave of a deadline. */
#ifndef LHI_BEAM_H
#define LHI_BEAM_H

#include "solve/bound/windows.h"
#include "solve/model/words.h"

/* `windows`: set for the deadline, not refuted; every machine that has streams
 * needs a lattice, and none may follow another, else *ok is false at once.
 * Keeps at most `width` partial schedules, or as many as fit in `room` bytes.
 * *ok: `out` has the orders of a schedule within the deadline. */
lh_status lhi_words_beam(lhi_windows *windows, uint32_t width, size_t room,
                         lhi_words *out, bool *ok, lhi_budget *budget,
                         lh_error *err);

#endif
