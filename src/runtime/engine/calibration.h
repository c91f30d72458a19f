/* SPDX-License-Identifier: Apache-2.0 */
/* Calibration of a run: the planned pass and message times are replaced by an
 * iteration's, measured on these devices and links.
 *
 * An iteration's predicted duration with calibrated times: the simulated one,
 * at least the time that the processors need for all ranks' passes, plus
 * the overhead of the measured iteration (optimizer, sums over ranks). If the
 * measured iteration took less than its simulation, which has the slowest
 * replica's time of every pass, predictions are shorter by the same factor. */
#ifndef LHI_RUNTIME_ENGINE_CALIBRATION_H
#define LHI_RUNTIME_ENGINE_CALIBRATION_H

#include "runtime/engine/job.h"

/* A measured iteration as a whole. */
typedef struct lhi_measured_iteration {
    int64_t ns;
    /* Time that the processors need for all passes if every processor is
     * always busy; 0: each rank has its own processor. */
    int64_t processors_ns;
    /* Runs that may exchange hosts, without emulated links: total pass time per
     * place, and times per hop of lhi_slow_hosts_hops(); NAN: unknown. */
    const double *pass_ns, *hop_ns;
} lhi_measured_iteration;

/* Calibrated times. */
typedef struct lhi_calibration {
    lh_pipeline *pipeline; /* measured times; owned. NULL: not calibrated */
    int64_t overhead_ns, processors_ns;
    double factor; /* at most 1 */
} lhi_calibration;

/* Checks whether the run's times can differ from the pipeline's, so that
 * calibration makes sense: passes are computed, or links are real. */
bool lhi_job_can_calibrate(const lhi_job *job);

/* Starts a calibration with the pipeline `measured`, which it owns from then
 * on, and with `whole`, a measured iteration that takes simulated_ns in the
 * simulator. */
void lhi_calibration_init(lhi_calibration *calibration, lh_pipeline *measured,
                          const lhi_measured_iteration *whole,
                          int64_t simulated_ns);
/* Replaces the calibration's overhead and factor by those that turn
 * simulated_ns, the simulated time, into the mean measured duration `ns` of
 * iterations. */
void lhi_calibration_refine(lhi_calibration *calibration, int64_t ns,
                            int64_t simulated_ns);
void lhi_calibration_fini(lhi_calibration *calibration);

/* Returns the predicted duration in ns of an iteration that takes simulated_ns
 * in the simulator with the calibrated times and one processor per rank; 0: not
 * calibrated. */
int64_t lhi_calibration_predict(const lhi_calibration *calibration,
                                int64_t simulated_ns);

/* Writes a sentence that compares planned and measured times into `text`
 * (`room` bytes): iteration, and mean times of passes and messages. */
void lhi_calibration_describe(const lhi_calibration *calibration,
                              const lhi_job *job,
                              const lhi_measured_iteration *whole, char *text,
                              size_t room);

#endif
