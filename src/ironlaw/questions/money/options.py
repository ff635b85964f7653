"""Options of ``ironlaw money``."""

from __future__ import annotations

from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option, duration, positive, price, share
from ironlaw.question.readers import amount, with_unit

OPTIONS: dict[str, Option] = {
    **ESTIMATE,
    "gpu_hours": Option(amount, "accelerator hours of the run, failures included, instead of MODEL and --tokens", "HOURS"),
    "tokens": ESTIMATE["tokens"].replace(help="tokens of the whole run, such as 15T, or per parameter: 20x"),
    "idle": Option(duration, "time the accelerators are paid for and run nothing, such as 12h (default: none)", "TIME"),
    "reserved_price": Option(price, "reserved price, paid whether used or not: USD per accelerator hour, or provider/term", "PRICE"),
    "spot_price": Option(price, "price of interruptible machines: USD per accelerator hour, or provider/term", "PRICE"),
    "spot_mttf": Option(duration, "mean time between interruptions of one spot accelerator, such as 20000h", "TIME"),
    "utilisation": Option(share, "share of the time that reserved or owned accelerators are used (default: 1)", "SHARE"),
    "purchase_price": Option(positive("USD"), "price of one accelerator with its share of server and network", "USD"),
    "residual": Option(share, "resale value at the end of --life, as a share of the purchase price (default: 0)", "SHARE"),
    "life": Option(duration, "depreciation time of a purchase, such as 5years (default: the catalogue's)", "TIME"),
    "electricity_price": Option(
        with_unit("USD/J", "0.08USD/kWh"), "price of electricity, such as 0.08USD/kWh (default: the catalogue's)", "PRICE"
    ),
    "hosting_price": Option(
        with_unit("USD/J", "180USD/kW/month"), "price of data-centre space, such as 180USD/kW/month (default: the catalogue's)", "PRICE"
    ),
    "staff": Option(
        with_unit("USD/s", "500USD/year"), "cost of staff and repairs per accelerator, such as 500USD/year (default: 0)", "PRICE"
    ),
    "power": Option(positive("W"), "your measured node power per accelerator, such as 850W", "POWER"),
    "network_power": Option(positive("W"), "power of switches per accelerator (default: 0)", "POWER"),
    "load": Option(share, "share of the time accelerators compute (default: from the estimate)", "SHARE"),
}
EXAMPLES = """\
  ironlaw money llama-3-70b --on h100-sxm --gpus 512 --tokens 1T
  ironlaw money --gpu-hours 1.2M --gpus 1024 --on h100-sxm --purchase-price 30000 --utilisation 60%
"""
