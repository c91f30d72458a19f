/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LHI_LATTICE_H
#define LHI_LATTICE_H

#include "solve/bound/windows.h"

/* NULL: more than `room` bytes, stopped, or no memory (then *no_memory). Free
 * with free() after free(counts) and free(step). */
lhi_lattice *lhi_lattice_make(const lhi_shop *shop, uint32_t machine,
                              size_t room, lhi_budget *budget, bool *no_memory);
/* The same without states that no order in these windows passes through. Where
 * none leads to the end, the end is not among them. */
lhi_lattice *lhi_lattice_make_live(const lhi_windows *windows, uint32_t machine,
                                   size_t room, lhi_budget *budget,
                                   bool *no_memory);
void lhi_lattice_free(lhi_lattice *lattice);

/* These look at the time, but spend nothing. */

/* Tightens new_r and new_e of the machine's operations; false: no order. Out of
 * time it gives true, and they are of no use. */
bool lhi_lattice_tighten(const lhi_lattice *lattice, lhi_windows *windows,
                         lhi_budget *budget);
/* A copy with the states on usable steps alone; NULL: no memory, or out
 * of time. */
lhi_lattice *lhi_lattice_narrow(const lhi_lattice *lattice,
                                lhi_windows *windows, lhi_budget *budget);
/* When each state may be left at the latest; below 0: it is dead. false: no
 * order, or out of time. */
bool lhi_lattice_last(const lhi_lattice *lattice, lhi_windows *windows,
                      int64_t *last, lhi_budget *budget);
/* least and most from the steps that are still usable; out of time they are of
 * no use. */
void lhi_lattice_counts(const lhi_lattice *lattice, lhi_windows *windows,
                        lhi_budget *budget);

#endif
