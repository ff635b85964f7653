"""Options of ``ironlaw money``."""

from __future__ import annotations

from ironlaw.question.forms import Form, OneOf
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option
from ironlaw.question.readers import amount, duration, positive, price, share, with_unit

OPTIONS: dict[str, Option] = {
    **ESTIMATE,
    "gpu_hours": Option(amount, "accelerator hours of the run, failures included, instead of MODEL and --tokens", "HOURS"),
    "tokens": ESTIMATE["tokens"].replace(decided=""),
    "idle": Option(duration, "time the accelerators are paid for and run nothing, such as 12h", decided="none"),
    "reserved_price": Option(price, "reserved price, paid whether used or not: USD per accelerator hour, or provider/term"),
    "spot_price": Option(price, "price of interruptible machines: USD per accelerator hour, or provider/term"),
    "spot_mttf": Option(duration, "mean time between interruptions of one spot accelerator, such as 20000h", needs=("spot_price",)),
    "utilization": Option(share, "share of the time that reserved or owned accelerators are used", decided="1"),
    "purchase_price": Option(positive("USD"), "price of one accelerator with its share of server and network", "USD"),
    "residual": Option(
        share, "resale value at the end of --life, as a share of the purchase price", decided="0", needs=("purchase_price",)
    ),
    "life": Option(duration, "depreciation time of a purchase, such as 5years", decided="the catalogue's"),
    "electricity_price": Option(
        with_unit("USD/J", "0.08USD/kWh"), "price of electricity, such as 0.08USD/kWh", "PRICE", decided="the catalogue's"
    ),
    "hosting_price": Option(
        with_unit("USD/J", "180USD/kW/month"), "price of data-centre space, such as 180USD/kW/month", "PRICE", decided="the catalogue's"
    ),
    "staff": Option(
        with_unit("USD/s", "500USD/year"), "cost of staff and repairs per accelerator, such as 500USD/year", "PRICE", decided="0"
    ),
    "power": Option(positive("W"), "your measured node power per accelerator, such as 850W", "POWER"),
    "network_power": Option(positive("W"), "power of switches per accelerator", "POWER", decided="0"),
    "load": Option(
        share,
        "share of the time accelerators compute",
        decided="from the estimate",
        excludes={"power": "a measured power includes the load"},
    ),
}
OWN = tuple(name for name in OPTIONS if name not in ESTIMATE)
FORMS = (
    Form(
        "--gpu-hours, which replaces the estimate",
        when=("gpu_hours",),
        takes=(*OWN, "on", "gpus", "node", "fabric", "price", "grid", "pue", "restart_time"),
        needs=("on", "gpus"),
    ),
    Form(
        "MODEL",
        when=("model",),
        needs=(OneOf(("model",), "missing run: give MODEL with --tokens, or --gpu-hours with --gpus"), "on", "gpus", "tokens"),
    ),
)
EXAMPLES = """\
  ironlaw money llama-3-70b --on h100-sxm --gpus 512 --tokens 1T
  ironlaw money --gpu-hours 1.2M --gpus 1024 --on h100-sxm --purchase-price 30000 --utilization 60%
"""
