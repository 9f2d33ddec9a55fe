"""The activities of a drill with their bounds, and what their failures prove."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.drill import DrillActivities
    from fleet.config import ServerSpec
    from fleet.contracts.drill import (
        DrillErrorType,
        FreezeOrder,
        Survey,
        SurveyRequest,
        Thawed,
        ThawOrder,
    )
    from fleet.contracts.host import Effect, HostErrorType, HostState, RestartResult
    from workflows.hands import Hands, HostTrouble

_HEARTBEAT = timedelta(seconds=20)
_BOUND = timedelta(seconds=90)
#: An order that no worker has taken by then is dropped: what spoke for it is old.
_START_WITHIN = timedelta(seconds=30)
_PROOFS = frozenset({*HostErrorType, *DrillErrorType})


class DrillHands(Hands):
    async def survey(self, spec: ServerSpec, machine: str | None) -> Survey:
        """What steady holds of the server.

        Raises:
            ActivityError: it can't be asked now.
        """
        return await self.do(
            DrillActivities.survey_server,
            SurveyRequest(
                server=self._server,
                budget=spec.policy.budget,
                machine=machine,
                machine_budget=spec.host.budget if spec.host is not None else None,
            ),
            summary="ask its ledger and its remediation how they stand",
        )

    async def freeze(self, expected: HostState) -> RestartResult:
        """Send the command, once. Where it may have left, its effect is *unknown* at the least.

        Raises:
            HostTrouble: it is proved that nothing was frozen.
        """
        try:
            return await workflow.execute_activity_method(
                DrillActivities.freeze_server,
                FreezeOrder(server=self._server, expected=expected),
                schedule_to_start_timeout=_START_WITHIN,
                start_to_close_timeout=_BOUND,
                heartbeat_timeout=_HEARTBEAT,
                retry_policy=RetryPolicy(maximum_attempts=1),
                summary=f"freeze {self._server} for the drill",
            )
        except ActivityError as problem:
            cause = problem.cause
            if isinstance(cause, ApplicationError) and cause.type in _PROOFS:
                raise HostTrouble(str(cause.type), cause.message) from problem
            return RestartResult(effect=Effect.UNKNOWN, detail=str(cause or problem)[:500])

    async def thaw(self, spec: ServerSpec, frozen: HostState) -> Thawed:
        """Let it go on.

        Raises:
            HostTrouble: it may be frozen still.
        """
        try:
            return await workflow.execute_activity_method(
                DrillActivities.thaw_server,
                ThawOrder(spec=spec, frozen=frozen),
                start_to_close_timeout=_BOUND,
                heartbeat_timeout=_HEARTBEAT,
                retry_policy=RetryPolicy(
                    initial_interval=timedelta(seconds=1),
                    maximum_interval=timedelta(seconds=10),
                    maximum_attempts=5,
                ),
                summary=f"let {self._server} go on, if the frozen process is still there",
            )
        except ActivityError as problem:
            cause = problem.cause
            said = cause.message if isinstance(cause, ApplicationError) else str(cause or problem)
            raise HostTrouble("thaw", said) from problem
